"""Names, places and other small words of the embedded collection; no first names, no gendered words."""

from __future__ import annotations

SURNAMES: tuple[str, ...] = (
    "Abara",
    "Amiri",
    "Bergstrom",
    "Castell",
    "Dalgaard",
    "Duarte",
    "Eklund",
    "Farouk",
    "Fekete",
    "Hadley",
    "Haruna",
    "Ibanez",
    "Jansen",
    "Kowalski",
    "Lindqvist",
    "Marchetti",
    "Moreau",
    "Nakata",
    "Novak",
    "Okafor",
    "Petrov",
    "Quispe",
    "Ramanujam",
    "Rossi",
    "Silva",
    "Tanaka",
    "Tran",
    "Varga",
    "Walker",
    "Yilmaz",
)

PLACES: tuple[str, ...] = (
    "Ashford",
    "Birchwood",
    "Brookfield",
    "Claymoor",
    "Dunmore",
    "Eastbridge",
    "Fernhill",
    "Greystone",
    "Harbourton",
    "Kirkdale",
    "Lakeview",
    "Millbrook",
    "Northgate",
    "Oakham",
    "Riverton",
    "Stonebury",
    "Thornfield",
    "Westhaven",
)

NUMBERS: tuple[str, ...] = (
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "twelve",
    "fifteen",
    "twenty",
    "thirty",
)

AGES: tuple[str, ...] = (
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
    "twenty",
)

SEASONS: tuple[str, ...] = (
    "spring",
    "summer",
    "autumn",
    "winter",
)

OTHER_WORK: tuple[str, ...] = (
    "archaeologist",
    "call centre agent",
    "crane operator",
    "elevator inspector",
    "history student",
    "librarian",
    "lifeguard",
    "museum guide",
    "opera singer",
    "postal worker",
    "radio presenter",
    "school teacher",
    "security guard",
    "swimming coach",
    "toy seller",
    "train conductor",
    "usher",
    "warehouse worker",
)
