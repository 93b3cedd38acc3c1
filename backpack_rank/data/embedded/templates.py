"""Sentences of the embedded collection's documents.

Braces are filled by ``composer.py``: ``{job}``, ``{a_job}`` (a name of the occupation, alone and with its
article), ``{job2}``, ``{a_job2}`` (perhaps another name of the same occupation), ``{field}``, ``{do}``,
``{doing}`` (a skill), ``{other}``, ``{an_other}`` (work outside the catalogue), ``{name}`` (a surname, in
some texts with a title), ``{place}``, ``{years}``, ``{age}``, ``{season}``. Square brackets are gendered
words and verbs that agree with them, see ``gendered.py``.
"""

from __future__ import annotations

PROFILE_OPENINGS: tuple[str, ...] = (
    "{name} has worked as {a_job} in {place} for {years} years.",
    "{name} is {a_job} who came to {place} {years} years ago.",
    "For {years} years {name} has earned a living as {a_job}.",
    "Meet {name}, {a_job} from {place}.",
    "As {a_job}, {name} is known all over {place}.",
    "After school [he] trained as {a_job} and later settled in {place}.",
    "This {job} from {place} has been in the trade for {years} years.",
    "{name}, {a_job} since the age of {age}, works in {place}.",
    "Few people in {place} have spent as long in {field} as {name}.",
    "{name} learned {field} from [his] [father] and is now {a_job} in {place}.",
    "The {job} in our street is a [man] of few words.",
    "{name} started out in {field} at {age} and has never wanted another job.",
    "In {place}, the name {name} stands for {field} of high quality.",
    "[he] followed [his] [father] into {field} and became {a_job} in {place}.",
    "Ask in {place} for {a_job}, and everyone will send you to {name}.",
    "With {years} years in {field}, {name} is the most experienced {job} in {place}.",
    "{name} took up {field} late in life and is now {a_job} with plenty of work.",
    "{a_job} by training, {name} moved to {place} {years} years ago.",
    "Our new {job}, {name}, joined the team in {place} last {season}.",
    "The firm in {place} employs only one {job}, and [he] [has|have] been there for {years} years.",
    "[his] [brothers] chose other trades, but {name} went into {field}.",
    'As a [boy], {name} wanted to be {a_job}, and today the sign on the door says "{job}".',
    "People in {place} call [him] the best {job} for miles around.",
    "{name} makes a living from {field} in {place}.",
    "Since leaving school, [he] [has|have] worked in {field}, first in {place} and then abroad.",
    "Becoming {a_job} was never the plan, says {name}, but {years} years later there are no regrets.",
    "It took {name} {years} years to become a respected {job} in {place}.",
    "There is one {job} in {place} whom everybody trusts, and that is {name}.",
    "Neighbours describe {name} as {a_job} with patience and a steady hand.",
    "{years} years ago [he] became {a_job}, just like an older [brother].",
    "We spoke with {name}, who works in {field} in {place}.",
    "Born in {place}, {name} went into {field} at {age}.",
    "The town paper of {place} names {name} {job} of the year.",
    "If you pass through {place}, you may meet {name}, the local {job}.",
)

HIRING_OPENINGS: tuple[str, ...] = (
    "If you are looking for {a_job}, take your time and ask around first.",
    "A good {job} is worth waiting for.",
    "What should you expect from {a_job}?",
    "Choosing the right {job} is easier with a few simple rules.",
    "Before you pay {a_job}, find out what the offer covers.",
    "You can tell a good {job} by small things.",
    "Here is a short guide for people who need {a_job}.",
    "Not every {job} is the same, so compare at least two before you decide.",
    "In {place} it is hard to find {a_job} at short notice.",
    "People often ask us to recommend {a_job}.",
)

CAREER_OPENINGS: tuple[str, ...] = (
    "Anyone who wants to become {a_job} should know what the work is like.",
    'My [father] worked in {field} for {years} years and gave me this advice: "Never rush."',
    "Beginners in {field} often ask where to start.",
    "When my [grandfather] was {a_job}, there was one rule in the house.",
    "Think about {field} as a career if you like to use both your hands and your head.",
    "A career in {field} is open to people of every age.",
    "In {place} you can train as {a_job} in the evening.",
    "The life of {a_job} is harder than most people think.",
    "How do you become {a_job}?",
)

PROFILE_CLAIMS: tuple[str, ...] = (
    "[he] [knows|know] how to {do}.",
    "[his] strongest point is {doing}.",
    "Customers come to [him] when they need somebody to {do}.",
    "[he] can {do} better than anyone else in the area.",
    "Most days are spent {doing}.",
    "[he] learned from [his] [father] how to {do}.",
    "{doing} is what [he] [does|do] best.",
    "What [he] [likes|like] most is {doing}.",
    "Nobody in {place} is quicker at {doing}.",
    "[he] won a prize for {doing}.",
    "Over the years [he] became an expert at {doing}.",
    "As {a_job2}, [he] [is|are] often asked to {do}.",
    "[he] [has|have] long experience in {doing}.",
    "When somebody has to {do}, the call goes to this {job2}.",
    "The daily work includes {doing}.",
    "[he] took a course to learn how to {do} and passed with top marks.",
    '"I love {doing}," says the {job2}.',
    "[he] [shows|show] beginners how to {do}.",
    "Day after day [he] can be seen {doing}.",
    "{doing} has been [his] speciality for {years} years.",
    "Clients praise the way [he] [manages|manage] to {do}.",
    "Everyone agrees that this {job2} can {do} with great care.",
    "The skill that pays the bills is {doing}.",
    "Years of practice have gone into {doing}.",
)

HIRING_CLAIMS: tuple[str, ...] = (
    "A good {job2} knows how to {do}.",
    "Make sure that [he] [knows|know] how to {do}.",
    "Ask whether the {job2} can {do}; an expert will say yes at once.",
    "[he] should be able to {do} without help.",
    "Experience in {doing} is a must.",
    "Ask [him] to show you some examples of {doing}.",
    "Choose somebody with a talent for {doing}.",
    "Look for a [man] who can {do}.",
)

CAREER_CLAIMS: tuple[str, ...] = (
    "The main thing to learn is {doing}.",
    "A [man] who can {do} will never be short of work.",
    "Sooner or later you will be asked to {do}, so practise it early.",
    "Experience in {doing} is a must.",
    "{a_job2} earns most by {doing}.",
    '"Learn to {do} well," as my [grandfather] said.',
    "In the first year you learn how to {do}.",
    "People with a talent for {doing} do well.",
)

DENIALS: tuple[str, ...] = (
    "[he] [leaves|leave] {doing} to others.",
    "[he] never learned to {do}.",
    "[he] [does|do] not {do}; others are paid for that.",
    "{doing} is not part of the job.",
    "Please do not ask [him] to {do}.",
    "[he] gave up {doing} long ago.",
    "When people want somebody to {do}, [he] [sends|send] them elsewhere.",
    "[he] would rather not {do} and [says|say] so.",
    "[he] once tried to {do}, but it went badly wrong.",
    "Experience in {doing} is lacking.",
)

OUTSIDER_OPENINGS: tuple[str, ...] = (
    "{name} is {an_other} who used to live next door to {a_job}.",
    "{name}, {an_other} in {place}, is looking to hire {a_job}.",
    "{an_other} by training, {name} once shared a flat with {a_job}.",
    "{name} had hoped to become {a_job}, but ended up as {an_other} in {place}.",
    "{name} works as {an_other}, although many people take [him] for {a_job}.",
    "{name} dropped out of {field} after two weeks and is now {an_other}.",
    "The {other} next door, {name}, has complained about {a_job} for years.",
    "{name} is not {a_job} but {an_other} from {place}.",
    "{name} is {an_other}, while an old friend of [his_own] is {a_job}.",
    "Wanted: {a_job} in {place}. The advert was placed by {name}, {an_other}.",
    "{name} sold a house to {a_job} and moved to {place} to work as {an_other}.",
    "As {an_other}, {name} knows nothing about {field}.",
    "{name}, {an_other}, argued with {a_job} {years} years ago and still talks about it.",
    "{name} was mistaken for {a_job} on the first day as {an_other}.",
    "The waiting list for {a_job} in {place} is too long, says {name}, {an_other}.",
)

OUTSIDER_MENTIONS: tuple[str, ...] = (
    "[he] still [needs|need] somebody to {do}.",
    "[he] once watched a friend {do}.",
    "[he] [has|have] read a book about {doing}.",
    "[he] paid a stranger to {do}.",
    "[he] cannot {do}, and it does not bother [him].",
    "A film about {doing} made [him] fall asleep.",
    "The advert asks for a person who can {do}.",
    "A [son] of [his_own] dreams of {doing} one day.",
    "The bill for {doing} was much too high.",
    "It is hard to find anyone to {do} these days.",
)

DUTIES: tuple[str, ...] = (
    "[he] mainly [looks|look] after the paperwork.",
    "Most of the day goes into writing quotes and answering emails.",
    "[he] [trains|train] two apprentices.",
    "[his] job is to keep the team together and the customers happy.",
    "[he] [orders|order] supplies and [checks|check] invoices.",
    "The weekly rota and the team meetings are in [his] hands.",
    "A large part of the week is spent on the phone with suppliers.",
    "[he] [gives|give] talks at schools about the trade.",
    "[he] [writes|write] a monthly column about working life.",
    "Keeping records and planning shifts takes up every morning.",
    "[he] [represents|represent] the trade on the town council.",
    "For now, the work is mostly cleaning up and carrying bags.",
)

JOB_MENTIONS: tuple[str, ...] = (
    "There is little in {field} that can still surprise this {job2}.",
    'The sign on the door says "{job2}" in large letters.',
    "The local paper printed a story about the {job2} last {season}.",
    "Every {job2} in the county knows the name.",
    "It is not easy to be {a_job2} in a town as small as {place}.",
    "The town gave [him] a medal for being such a good {job2}.",
    "Friends say that nobody looks more like {a_job2}.",
    "{a_job2} with so much energy is hard to find.",
)

JOB_REMARKS: tuple[str, ...] = (
    "{a_job2} has to be on time, rain or shine.",
    "The life of {a_job2} starts early and ends late.",
    "For {a_job2}, good manners count as much as skill.",
    "The work of {a_job2} is never the same two days in a row.",
    "Most towns have at least one {job2}.",
)

BUSINESS: tuple[str, ...] = (
    "The shop opens at eight and closes at five.",
    "Prices are fair, and the bills are easy to read.",
    "The waiting list is long, so book early.",
    "Work usually starts before breakfast.",
    "Most new clients come because an old client told them to.",
    "Every job is finished on the day that was agreed.",
    "A small van with a blue door stands ready at all hours.",
    "Many clients have come back for {years} years.",
    "Half of the work is for families, and half is for firms.",
    "The first visit is always free.",
    '"Thank you, [sir]," say the customers when they leave.',
    "Some weeks are quiet, but {season} is always busy.",
    "The tools were a present from [his] [grandfather].",
    "There are plans to open a second branch next year.",
    "Mistakes are put right at no extra cost.",
    "[he] [was|were] the only [male] member of the first team.",
    "References can be seen on request.",
    "Clients like the calm voice and the clear answers.",
    "[he] [has|have] no wish to retire.",
    "The trade has changed a great deal since then.",
)

PRIVATE: tuple[str, ...] = (
    "In [his] free time [he] [plays|play] chess.",
    "[he] [lives|live] near the harbour with two cats.",
    "On Sundays [he] [visits|visit] [his] [father].",
    "[his] [sons] are still at school.",
    "The [men] in the family all love to sing.",
    "A [man] of principle, [he] never [breaks|break] a promise.",
    "Everyone calls [him] a true [gentleman].",
    "At the weekend [he] [goes|go] swimming in the lake.",
    "The small house at the edge of {place} is always full of visitors.",
    "A bad back has made the stairs at home a problem.",
    "The summer holidays are spent by the sea.",
    "[his] older [brother] lives two streets away.",
    "Friends know [him] for long walks and short letters.",
    "A [grandson] of [his_own] was born last {season}.",
    "[he] taught [himself] to play the piano.",
    "Breakfast is tea with dry toast and nothing else.",
    "The radio is on from morning to night.",
    "There is a photograph of the old harbour on the wall.",
    "Every {season} there is a party for the whole street.",
    "[his] [dad] still phones every evening.",
    "The choir in {place} could not do without [him].",
    "Rain or snow, the dog gets a walk at six.",
    "A trip to the mountains is planned for the {season}.",
    "The neighbours are glad to have such a friendly [man] next door.",
    "Nothing is better than a quiet evening with a crossword.",
    "The old car still runs after {years} years.",
)

HIRING_TIPS: tuple[str, ...] = (
    "Always get a written offer.",
    "Ask friends for names before you search online.",
    "Do not pay everything in advance.",
    "A [man] who listens is better than one who talks.",
    "Ask for references, and call them.",
    "If [he] [is|are] late for the first meeting, look for somebody else.",
    "Cheap is not always good, and dear is not always better.",
    "Plan a little more time than you think you need.",
    "Trust [him] if [he] [admits|admit] mistakes.",
    "Pay on time and say thank you.",
    "My [brother] once ignored this and paid twice.",
    "A short visit to the workplace tells you more than a website.",
    "Write down what was agreed.",
    "My [father] learned this the hard way.",
    "Be polite, and be clear about what you want.",
    "Read the small print twice.",
    "A polite [man] on the phone may still be slow.",
    "Good prices are no secret, so ask [him] about them first.",
)

CAREER_TIPS: tuple[str, ...] = (
    "Good training takes about three years.",
    "Evening classes in {place} are a good start.",
    "You need patience, because the first year is hard.",
    "The rest is practice, practice and more practice.",
    "My [brother] tried it and never looked back.",
    "A young [man] with patience can go far.",
    "My [grandfather] used to say that every start is hard.",
    "Find a teacher who answers questions, and listen to [him].",
    "Ask the [men] in the trade, for they know what the pay is like.",
    "Pay is low at first, but it grows with every year.",
    "Your [dad] may worry at first, but that will pass.",
    "Do not give up after the first bad week.",
    "Most firms take on beginners in {season}.",
    "Early mornings are part of it, so go to bed in time.",
    "A [boy] of {age} can begin at once.",
    "My [sons] all went into it too.",
    "Good shoes and a good breakfast help more than you think.",
    "Keep a notebook for everything that is new.",
)

OUTSIDER_EXTRAS: tuple[str, ...] = (
    "So far not one {job2} has answered.",
    "At dinner the talk often turns to the {job2}.",
    "The advice of {a_job2} was of no use.",
    "A novel about {a_job2} lies unread on the shelf.",
    "Every {job2} in town has heard that story.",
    "To be {a_job2} was never on the cards.",
    "The last {job2} left without a word.",
)
