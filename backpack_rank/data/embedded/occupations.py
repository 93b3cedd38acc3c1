"""The occupations of the embedded collection: twelve families of four, each with names that mean the same."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Occupation:
    """One occupation.

    Attributes:
        key: identifier, also the key of its skills in ``skills.SKILLS``.
        family: occupations of one family are related.
        names: nouns for a person in this occupation; queries and documents pick among them independently.
        field: the name of the trade, usable after "in".
    """

    key: str
    family: str
    names: tuple[str, ...]
    field: str


OCCUPATIONS: tuple[Occupation, ...] = (
    Occupation("plumber", "building", ("plumber", "pipe fitter"), "plumbing"),
    Occupation(
        "electrician",
        "building",
        ("electrician", "wiring technician"),
        "electrical work",
    ),
    Occupation("bricklayer", "building", ("bricklayer", "mason"), "masonry"),
    Occupation("roofer", "building", ("roofer", "roof installer"), "roofing"),
    Occupation("carpenter", "interior", ("carpenter", "joiner"), "joinery"),
    Occupation("painter", "interior", ("house painter", "decorator"), "decorating"),
    Occupation("tiler", "interior", ("tiler", "floor layer"), "tiling"),
    Occupation("upholsterer", "interior", ("upholsterer", "furniture restorer"), "furniture repair"),
    Occupation("baker", "food", ("baker", "bread maker"), "baking"),
    Occupation("chef", "food", ("chef", "restaurant cook"), "cooking"),
    Occupation("butcher", "food", ("butcher", "meat cutter"), "butchery"),
    Occupation("brewer", "food", ("brewer", "beer maker"), "brewing"),
    Occupation("barista", "hospitality", ("barista", "coffee server"), "coffee service"),
    Occupation("bartender", "hospitality", ("bartender", "bar keeper"), "bar work"),
    Occupation(
        "receptionist",
        "hospitality",
        ("hotel receptionist", "front desk agent"),
        "guest reception",
    ),
    Occupation(
        "event_planner",
        "hospitality",
        ("event planner", "conference organiser"),
        "event management",
    ),
    Occupation("nurse", "health", ("nurse", "ward carer"), "nursing"),
    Occupation("dentist", "health", ("dentist", "dental surgeon"), "dentistry"),
    Occupation("pharmacist", "health", ("pharmacist", "druggist"), "pharmacy"),
    Occupation(
        "physiotherapist",
        "health",
        ("physiotherapist", "rehabilitation therapist"),
        "rehabilitation",
    ),
    Occupation("optician", "care", ("optician", "eyewear fitter"), "optics"),
    Occupation("hairdresser", "care", ("hairdresser", "hair stylist"), "hair care"),
    Occupation("massage_therapist", "care", ("massage therapist", "body worker"), "massage therapy"),
    Occupation("caregiver", "care", ("caregiver", "home carer"), "home care"),
    Occupation("lawyer", "office", ("lawyer", "attorney"), "law"),
    Occupation("accountant", "office", ("accountant", "bookkeeper"), "accounting"),
    Occupation("loan_officer", "office", ("loan officer", "bank adviser"), "banking"),
    Occupation("estate_agent", "office", ("estate agent", "property broker"), "property sales"),
    Occupation("developer", "computing", ("software developer", "programmer"), "programming"),
    Occupation(
        "network_technician",
        "computing",
        ("network technician", "system administrator"),
        "network support",
    ),
    Occupation("data_analyst", "computing", ("data analyst", "statistician"), "data analysis"),
    Occupation("web_designer", "computing", ("web designer", "website builder"), "web design"),
    Occupation("photographer", "media", ("photographer", "camera operator"), "photography"),
    Occupation("journalist", "media", ("journalist", "reporter"), "journalism"),
    Occupation("translator", "media", ("translator", "interpreter"), "translation"),
    Occupation("illustrator", "media", ("illustrator", "cartoonist"), "illustration"),
    Occupation("gardener", "land", ("gardener", "landscaper"), "gardening"),
    Occupation("farmer", "land", ("farmer", "crop grower"), "farming"),
    Occupation("forester", "land", ("forester", "forest ranger"), "forestry"),
    Occupation("beekeeper", "land", ("beekeeper", "honey producer"), "beekeeping"),
    Occupation("car_mechanic", "transport", ("car mechanic", "auto technician"), "car repair"),
    Occupation("bicycle_mechanic", "transport", ("bicycle mechanic", "bike builder"), "bike repair"),
    Occupation("pilot", "transport", ("pilot", "aviator"), "aviation"),
    Occupation("truck_driver", "transport", ("truck driver", "lorry driver"), "road haulage"),
    Occupation("tailor", "craft", ("tailor", "dressmaker"), "tailoring"),
    Occupation("jeweller", "craft", ("jeweller", "goldsmith"), "jewellery making"),
    Occupation("shoemaker", "craft", ("shoemaker", "cobbler"), "shoe repair"),
    Occupation("potter", "craft", ("potter", "ceramic artist"), "pottery"),
)
