"""The skills of every occupation: five each, each said in three ways that mean the same.

Every phrase starts with a verb in its base form, so that it stands after "can" and, through ``gerund``,
after "is good at".
"""

from __future__ import annotations

SKILLS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "plumber": (
        ("mend leaking pipes", "stop pipe leaks", "repair dripping water lines"),
        ("solder copper joints", "join copper tubing", "seal copper pipe ends"),
        ("clear blocked drains", "unblock sinks and drains", "free clogged waste lines"),
        ("install water heaters", "fit hot water boilers", "connect boiler tanks"),
        ("fit bathroom taps", "replace worn taps", "change bathroom faucets"),
    ),
    "electrician": (
        ("rewire old houses", "replace old wiring", "renew house cables"),
        ("install fuse boxes", "fit fuse panels", "put in breaker boxes"),
        ("find short circuits", "trace electrical faults", "locate circuit faults"),
        ("mount solar panels", "install solar modules", "put up rooftop solar cells"),
        ("hang ceiling lamps", "fit indoor lights", "install ceiling lights"),
    ),
    "bricklayer": (
        ("build garden walls", "raise brick walls", "put up garden brickwork"),
        ("mix mortar", "prepare cement paste", "stir mortar and cement"),
        ("repair chimneys", "rebuild chimney stacks", "mend old chimney tops"),
        ("cut stone blocks", "shape building stone", "dress stone slabs"),
        ("pour concrete floors", "lay concrete bases", "cast concrete ground plates"),
    ),
    "roofer": (
        ("replace broken slates", "change cracked roof slates", "swap damaged roof tiles"),
        ("seal flat roofs", "waterproof flat surfaces", "cover flat roofs with felt"),
        ("fit rain gutters", "install gutters", "hang rain channels"),
        ("insulate attics", "line lofts against the cold", "put insulation in attics"),
        ("fix skylights", "mount roof windows", "fit skylight frames"),
    ),
    "carpenter": (
        ("build oak staircases", "make wooden stairs", "construct stairs from oak"),
        ("hang doors", "fit door frames", "mount new doors"),
        ("make kitchen cabinets", "build fitted cupboards", "assemble kitchen cupboards"),
        ("lay wooden floors", "fit parquet", "put down wooden boards"),
        ("carve wood ornaments", "whittle wooden figures", "cut ornaments from wood"),
    ),
    "painter": (
        ("hang wallpaper", "paper walls", "put up wall coverings"),
        ("strip old paint", "remove flaking paint", "sand off old coats"),
        ("spray radiators", "coat metal radiators", "lacquer heating panels"),
        ("mix colours", "match paint shades", "blend colour tones"),
        ("smooth plaster", "fill wall cracks", "repair cracked plaster"),
    ),
    "tiler": (
        ("tile shower rooms", "cover shower walls with tiles", "set tiles around baths"),
        ("grout joints", "fill tile gaps", "renew grout between tiles"),
        ("level uneven floors", "even out floor surfaces", "flatten rough floors"),
        ("cut mosaic patterns", "arrange mosaics", "piece mosaic patterns together"),
        ("lay vinyl sheets", "fit linoleum", "glue down vinyl flooring"),
    ),
    "upholsterer": (
        ("recover armchairs", "put new fabric on chairs", "renew chair covers"),
        ("replace sofa springs", "mend sagging sofas", "fix broken seat springs"),
        ("stuff cushions", "fill seat cushions", "pad pillows with foam"),
        ("polish antique tables", "wax old tables", "restore antique wood finishes"),
        ("stitch leather seats", "sew leather covers", "repair torn leather"),
    ),
    "baker": (
        ("bake sourdough loaves", "make sourdough bread", "prepare rye loaves"),
        ("decorate wedding cakes", "ice celebration cakes", "pipe icing on cakes"),
        ("fold croissants", "roll butter pastry", "shape buttery croissants"),
        ("temper chocolate", "melt chocolate for coatings", "make pralines"),
        ("knead dough", "work yeast dough", "prepare pizza dough"),
    ),
    "chef": (
        ("grill fresh fish", "prepare seafood", "cook fish fillets"),
        ("simmer sauces", "make rich gravies", "reduce stock into sauce"),
        ("plan vegan menus", "write plant based menus", "create meatless dishes"),
        ("plate desserts", "serve fine sweets", "arrange dessert plates"),
        ("cater for large banquets", "feed big parties", "cook banquet meals"),
    ),
    "butcher": (
        ("bone hams", "remove bones from ham", "cut up pork legs"),
        ("stuff sausages", "fill sausage skins", "make spiced sausages"),
        ("cure bacon", "salt and smoke bacon", "smoke pork bellies"),
        ("slice steaks", "cut beef steaks", "portion beef"),
        ("sharpen knives", "grind blades", "keep knife edges keen"),
    ),
    "brewer": (
        ("malt barley", "roast barley malt", "dry malted grain"),
        ("ferment ale", "manage ale fermentation", "watch over fermenting beer"),
        ("clean beer barrels", "wash kegs", "rinse barrels and kegs"),
        ("bottle cider", "press apples for cider", "make apple wine"),
        ("taste hops", "choose hop varieties", "judge hop flavours"),
    ),
    "barista": (
        ("pull espresso shots", "make strong espresso", "serve small black coffees"),
        ("steam milk", "froth milk", "foam hot milk"),
        ("pour latte art", "draw patterns in foam", "draw latte patterns"),
        ("roast coffee beans", "toast green beans", "roast green coffee"),
        ("descale coffee machines", "clean espresso machines", "service coffee equipment"),
    ),
    "bartender": (
        ("mix cocktails", "shake cocktails", "blend long drinks"),
        ("pour draught beer", "tap beer", "serve draught lager"),
        ("recommend wines", "match wine with food", "suggest table wines"),
        ("calm rowdy guests", "handle drunk visitors", "settle noisy guests"),
        ("count the till", "balance cash drawers", "close the cash till"),
    ),
    "receptionist": (
        ("check in guests", "welcome arriving guests", "register arrivals"),
        ("handle room bookings", "manage reservations", "take room reservations"),
        ("answer guest complaints", "resolve complaints", "deal with unhappy visitors"),
        ("arrange airport transfers", "order airport taxis", "book airport shuttles"),
        ("issue room keys", "program key cards", "hand out key cards"),
    ),
    "event_planner": (
        ("book concert venues", "find venues", "rent halls for concerts"),
        ("organise trade fairs", "run exhibitions", "set up fair stands"),
        ("draw up seating plans", "plan where guests sit", "arrange guest seating"),
        ("hire stage crews", "recruit stage hands", "schedule stage crews"),
        ("sell event tickets", "manage ticket sales", "price admission tickets"),
    ),
    "nurse": (
        ("dress wounds", "bandage cuts", "change wound dressings"),
        ("give injections", "administer vaccines", "inject vaccines"),
        ("take blood samples", "draw blood", "collect blood for tests"),
        ("measure blood pressure", "monitor pulse and pressure", "record vital signs"),
        ("comfort dying patients", "look after the terminally ill", "sit with dying patients"),
    ),
    "dentist": (
        ("fill cavities", "repair decayed teeth", "put fillings in teeth"),
        ("pull wisdom teeth", "extract molars", "remove wisdom teeth"),
        ("fit braces", "straighten crooked teeth", "adjust dental braces"),
        ("whiten teeth", "bleach stained teeth", "brighten dull teeth"),
        ("make dentures", "shape false teeth", "fit dentures"),
    ),
    "pharmacist": (
        ("fill prescriptions", "dispense medicines", "prepare prescribed drugs"),
        ("mix ointments", "blend skin creams", "prepare healing ointments"),
        ("check drug interactions", "spot dangerous drug mixes", "review medicines for conflicts"),
        ("advise on allergies", "recommend allergy pills", "counsel allergy sufferers"),
        ("order vaccine stock", "manage medicine stores", "track drug stock"),
    ),
    "physiotherapist": (
        ("treat back pain", "relieve sore backs", "ease spine pain"),
        ("strengthen weak knees", "rebuild knee muscles", "exercise injured knees"),
        ("tape ankles", "bind sprained ankles", "support sprains with tape"),
        ("teach breathing exercises", "train weak lungs", "guide breathing drills"),
        ("help stroke patients walk", "retrain walking after strokes", "teach balance after a stroke"),
    ),
    "optician": (
        ("test eyesight", "examine vision", "measure eyesight"),
        ("grind lenses", "cut glass lenses", "polish optical glass"),
        ("fit contact lenses", "teach contact lens care", "choose contact lenses"),
        ("adjust spectacle frames", "bend frames into shape", "repair broken glasses"),
        ("screen for glaucoma", "check eye pressure", "detect eye disease"),
    ),
    "hairdresser": (
        ("cut curly hair", "trim curls", "shape curly hair"),
        ("dye hair", "colour grey hair", "tint roots"),
        ("braid long hair", "weave long braids", "plait long hair"),
        ("style wedding hair", "pin up hair for weddings", "set party hairstyles"),
        ("wash scalps", "treat dry scalps", "care for itchy scalps"),
    ),
    "massage_therapist": (
        ("loosen tight shoulders", "relax stiff necks", "release neck tension"),
        ("give hot stone treatments", "warm the back with stones", "apply heated stones"),
        ("massage tired legs", "rub down runners", "treat leg cramps"),
        ("use scented oils", "blend aroma oils", "work with plant oils"),
        ("press foot reflex points", "practise foot reflexology", "knead sore feet"),
    ),
    "caregiver": (
        ("bathe elderly clients", "wash frail people", "help seniors bathe"),
        ("prepare soft meals", "cook easy meals", "make meals for seniors"),
        ("lift wheelchair users", "move patients from wheelchairs", "handle wheelchairs and hoists"),
        ("watch over people with dementia", "support dementia sufferers", "calm confused seniors"),
        ("remind clients of pills", "sort daily pills", "set out weekly tablets"),
    ),
    "lawyer": (
        ("draft contracts", "write agreements", "prepare contract clauses"),
        ("defend accused clients", "argue in court", "plead criminal cases"),
        ("settle divorces", "handle divorce cases", "negotiate separation terms"),
        ("write wills", "draw up last wills", "settle inheritances"),
        ("register patents", "protect inventions", "file patent claims"),
    ),
    "accountant": (
        ("prepare tax returns", "file yearly taxes", "fill in tax forms"),
        ("balance ledgers", "keep account books", "post ledger entries"),
        ("run payroll", "calculate wages", "pay out staff wages"),
        ("audit companies", "inspect company accounts", "examine firm records"),
        ("forecast budgets", "plan budgets", "predict yearly spending"),
    ),
    "loan_officer": (
        ("approve mortgages", "grant home loans", "arrange mortgage loans"),
        ("rate credit risk", "judge borrowers", "check credit histories"),
        ("open savings accounts", "set up savings plans", "offer deposit accounts"),
        ("exchange foreign currency", "change foreign notes", "trade currencies"),
        ("advise on pensions", "plan retirement funds", "explain pension plans"),
    ),
    "estate_agent": (
        ("value houses", "estimate home prices", "appraise houses"),
        ("show flats to tenants", "lead apartment viewings", "guide apartment visits"),
        ("negotiate rents", "agree rental terms", "bargain over rent"),
        ("write property adverts", "advertise homes", "photograph homes for sale"),
        ("manage office lettings", "lease office space", "let business premises"),
    ),
    "developer": (
        ("write mobile apps", "build phone apps", "code apps for phones"),
        ("fix program bugs", "debug code", "remove software errors"),
        ("test code automatically", "write unit tests", "automate software tests"),
        ("design databases", "model data tables", "plan database tables"),
        ("refactor legacy code", "tidy old programs", "restructure legacy programs"),
    ),
    "network_technician": (
        ("configure routers", "set up routers", "program network switches"),
        ("back up servers", "archive server data", "make safety copies of servers"),
        ("block hackers", "secure networks with firewalls", "configure firewalls"),
        ("lay fibre cables", "install fibre lines", "splice optical fibre"),
        ("reset user passwords", "help users log in", "manage user passwords"),
    ),
    "data_analyst": (
        ("draw charts", "visualise figures", "turn figures into charts"),
        ("forecast sales", "predict demand", "estimate future sales"),
        ("clean messy data", "remove faulty records", "repair messy records"),
        ("design surveys", "write poll questions", "run opinion surveys"),
        ("train prediction models", "build machine learning models", "fit models to data"),
    ),
    "web_designer": (
        ("design landing pages", "lay out web pages", "create page layouts"),
        ("choose fonts", "pick typefaces", "select readable fonts"),
        ("build online shops", "set up web stores", "program shopping carts"),
        ("make sites accessible", "adapt pages for blind users", "improve site access"),
        ("speed up websites", "make sites load faster", "shorten page loading"),
    ),
    "photographer": (
        ("take studio portraits", "shoot portraits", "photograph faces in a studio"),
        ("retouch pictures", "edit photos", "correct photo colours"),
        ("light studio sets", "set up flash lamps", "arrange studio lighting"),
        ("photograph wild animals", "take wildlife pictures", "shoot wildlife scenes"),
        ("develop film", "print negatives", "process film in a darkroom"),
    ),
    "journalist": (
        ("interview politicians", "question ministers", "interview party leaders"),
        ("check facts", "verify sources", "confirm facts with sources"),
        ("cover sports matches", "report on football games", "write match reports"),
        ("investigate corruption", "uncover scandals", "expose corrupt deals"),
        ("write headlines", "edit front pages", "shorten news headlines"),
    ),
    "translator": (
        ("translate novels", "put fiction into other languages", "translate foreign fiction"),
        ("interpret at conferences", "translate speeches live", "interpret live talks"),
        ("subtitle films", "write film subtitles", "caption foreign movies"),
        ("translate legal papers", "certify translated documents", "work on legal documents"),
        ("compile glossaries", "collect technical terms", "build term lists"),
    ),
    "illustrator": (
        ("draw picture books", "illustrate fairy tales", "paint pictures for tales"),
        ("sketch cartoons", "draw comic strips", "ink comics"),
        ("design posters", "create poster art", "make advertising posters"),
        ("draw maps", "illustrate city maps", "sketch hiking maps"),
        ("paint watercolours", "work in watercolour", "paint landscapes in watercolour"),
    ),
    "gardener": (
        ("prune roses", "cut back rose bushes", "trim roses"),
        ("mow lawns", "cut grass", "care for lawns"),
        ("plant hedges", "clip hedges", "grow evergreen hedges"),
        ("build ponds", "dig garden ponds", "line ponds"),
        ("fight garden pests", "control slugs and pests", "protect plants from insects"),
    ),
    "farmer": (
        ("milk cows", "run a milking parlour", "handle dairy cows"),
        ("harvest wheat", "bring in grain", "cut wheat fields"),
        ("drive tractors", "plough fields", "plough with a tractor"),
        ("raise chickens", "keep poultry", "breed poultry"),
        ("grow potatoes", "plant potato fields", "dig up potatoes"),
    ),
    "forester": (
        ("fell trees", "cut down tall trees", "bring down old trees"),
        ("plant saplings", "replant woodland", "grow young trees"),
        ("mark hiking trails", "maintain forest paths", "clear trails"),
        ("count deer", "watch game numbers", "track deer herds"),
        ("prevent forest fires", "watch for wildfires", "fight wildfires"),
    ),
    "beekeeper": (
        ("harvest honey", "extract honey", "spin honey from combs"),
        ("catch swarms", "collect swarming bees", "capture bee swarms"),
        ("raise young colonies", "divide bee colonies", "start new colonies"),
        ("treat mites", "protect hives from mites", "control hive parasites"),
        ("make beeswax candles", "pour wax candles", "mould candles from wax"),
    ),
    "car_mechanic": (
        ("replace brakes", "change brake pads", "fit new brakes"),
        ("tune engines", "adjust motors", "set engine timing"),
        ("repair gearboxes", "rebuild gearboxes", "mend faulty transmissions"),
        ("change tyres", "balance wheels", "mount winter tyres"),
        ("weld exhausts", "patch rusty exhaust pipes", "fix exhaust leaks"),
    ),
    "bicycle_mechanic": (
        ("true wheels", "straighten bent spokes", "lace wheel spokes"),
        ("patch punctures", "mend flat tubes", "fix punctured tubes"),
        ("adjust gear cables", "tune bike gears", "set shifting gears"),
        ("build electric bikes", "fit electric bike motors", "install bike batteries"),
        ("oil chains", "replace worn chains", "clean bike chains"),
    ),
    "pilot": (
        ("land in fog", "touch down in poor visibility", "land planes in thick fog"),
        ("fly helicopters", "steer rescue helicopters", "fly air rescue missions"),
        ("plan flight routes", "chart air routes", "file flight plans"),
        ("train flight students", "teach flying", "instruct flight beginners"),
        ("inspect aircraft", "check planes before departure", "examine aircraft wings"),
    ),
    "truck_driver": (
        ("carry frozen goods", "haul refrigerated loads", "transport frozen food"),
        ("reverse trailers", "park long trailers", "back trailers into yards"),
        ("load pallets", "stack cargo pallets", "secure cargo with straps"),
        ("cross borders", "handle customs papers", "clear goods at borders"),
        ("transport dangerous chemicals", "carry chemical tanks", "haul hazardous liquids"),
    ),
    "tailor": (
        ("sew suits", "make tailored jackets", "sew jackets and suits"),
        ("hem trousers", "shorten trouser legs", "take up trousers"),
        ("embroider initials", "stitch embroidery", "embroider shirts"),
        ("cut patterns", "draft paper patterns", "draw dress patterns"),
        ("mend zips", "replace jacket zips", "repair broken zippers"),
    ),
    "jeweller": (
        ("set diamonds", "mount gemstones", "set precious stones"),
        ("resize rings", "widen tight rings", "make rings smaller"),
        ("engrave silver", "cut letters in silver", "engrave names on metal"),
        ("string pearls", "restring necklaces", "thread pearl necklaces"),
        ("cast gold", "melt gold scrap", "pour gold into moulds"),
    ),
    "shoemaker": (
        ("resole boots", "renew boot soles", "put new soles on boots"),
        ("fix broken heels", "replace worn heels", "rebuild heels"),
        ("make orthopaedic insoles", "shape insoles", "build supportive insoles"),
        ("dye leather", "colour leather shoes", "stain leather"),
        ("stretch tight shoes", "widen narrow shoes", "make tight shoes wider"),
    ),
    "potter": (
        ("throw bowls", "turn clay bowls", "shape bowls on a wheel"),
        ("fire kilns", "run a kiln", "bake clay in kilns"),
        ("glaze vases", "coat vases with glaze", "prepare coloured glazes"),
        ("paint plates", "decorate dinner plates", "paint ceramic plates"),
        ("model clay figures", "sculpt animals in clay", "form clay figures"),
    ),
}

_DOUBLED = frozenset(
    (
        "clip",
        "control",
        "counsel",
        "cut",
        "debug",
        "dig",
        "fit",
        "hem",
        "let",
        "level",
        "model",
        "pad",
        "pin",
        "plan",
        "program",
        "put",
        "reset",
        "rub",
        "run",
        "set",
        "sit",
        "spin",
        "spot",
        "stir",
        "stop",
        "strip",
        "swap",
        "tap",
        "trim",
    )
)


def gerund(phrase: str) -> str:
    """The phrase with its verbs in the -ing form: "cut hair" becomes "cutting hair"."""
    verb, _, rest = phrase.partition(" ")
    if rest.startswith("and smoke "):  # the one phrase with two verbs
        rest = "and smoking " + rest.removeprefix("and smoke ")
    return f"{_ing(verb)} {rest}"


def _ing(verb: str) -> str:
    if verb in _DOUBLED:
        return verb + verb[-1] + "ing"
    if verb.endswith("ie"):
        return verb[:-2] + "ying"
    if verb.endswith("e") and not verb.endswith(("ee", "ye", "oe")):
        return verb[:-1] + "ing"
    return verb + "ing"
