# SPDX-License-Identifier: Apache-2.0
"""Words and small facts of which the dialogues are made."""


def pairs(text):
    """{"hot": "cold"} from "hot/cold"."""
    return dict(pair.split("/") for pair in text.split())


CAPITALS = dict(
    zip(
        "France Germany Italy Spain Portugal Austria Poland Greece Norway Sweden Finland Denmark"
        " Ireland Belgium Hungary Romania Bulgaria Switzerland Ukraine Russia Turkey Egypt Kenya"
        " Nigeria Ghana Morocco Ethiopia Japan China India Thailand Vietnam Indonesia Pakistan Iran"
        " Iraq Israel Canada Mexico Cuba Brazil Argentina Chile Peru Colombia Australia Iceland"
        " Croatia Serbia Tunisia".split(),
        "Paris Berlin Rome Madrid Lisbon Vienna Warsaw Athens Oslo Stockholm Helsinki Copenhagen"
        " Dublin Brussels Budapest Bucharest Sofia Bern Kyiv Moscow Ankara Cairo Nairobi Abuja"
        " Accra Rabat Addis_Ababa Tokyo Beijing New_Delhi Bangkok Hanoi Jakarta Islamabad Tehran"
        " Baghdad Jerusalem Ottawa Mexico_City Havana Brasilia Buenos_Aires Santiago Lima Bogota"
        " Canberra Reykjavik Zagreb Belgrade Tunis".split(),
    )
)

CAPITALS = {k: v.replace("_", " ") for k, v in CAPITALS.items()}

CAPITALS.update(
    {
        "the United Kingdom": "London",
        "the United States": "Washington",
        "the Netherlands": "Amsterdam",
        "South Korea": "Seoul",
        "New Zealand": "Wellington",
        "Saudi Arabia": "Riyadh",
        "the Philippines": "Manila",
    }
)

CONTINENTS = {}

for cont, names in {
    "Europe": (
        "France Germany Italy Spain Portugal Austria Poland Greece Norway Sweden Finland Denmark"
        " Ireland Hungary Switzerland"
    ),
    "Africa": "Egypt Kenya Nigeria Ghana Morocco Ethiopia Tunisia",
    "Asia": "Japan China India Thailand Vietnam Pakistan Iran",
    "South America": "Brazil Argentina Chile Peru Colombia",
    "North America": "Canada Mexico Cuba",
}.items():
    for n in names.split():
        CONTINENTS[n] = cont

CURRENCIES = dict(
    zip(
        "Japan India China Russia Poland Sweden Switzerland Brazil Mexico Turkey Germany Thailand"
        .split(),
        "yen rupee yuan ruble zloty krona franc real peso lira euro baht".split(),
    )
)

OPPOSITES = pairs(
    "hot/cold big/small fast/slow light/dark old/young happy/sad up/down left/right"
    " early/late open/closed rich/poor strong/weak hard/soft wet/dry full/empty high/low"
    " long/short loud/quiet clean/dirty day/night good/bad thick/thin wide/narrow deep/shallow"
    " first/last near/far inside/outside true/false hello/goodbye heavy/light cheap/expensive"
    " easy/difficult sweet/sour brave/afraid love/hate win/lose begin/end push/pull buy/sell"
    " black/white"
)

SOUNDS = pairs(
    "dog/barks cat/meows cow/moos duck/quacks lion/roars horse/neighs sheep/bleats pig/oinks"
    " frog/croaks bee/buzzes snake/hisses owl/hoots wolf/howls mouse/squeaks"
)

YOUNG = pairs(
    "dog/puppy cat/kitten cow/calf horse/foal sheep/lamb pig/piglet duck/duckling bear/cub"
    " goat/kid hen/chick deer/fawn frog/tadpole goose/gosling"
)

LEGS = {
    "dog": "four",
    "cat": "four",
    "bird": "two",
    "spider": "eight",
    "ant": "six",
    "horse": "four",
    "human": "two",
    "bee": "six",
    "snake": "no",
    "fish": "no",
    "crab": "ten",
    "octopus": "no",
}

THING_COLORS = {
    "the sky": "blue",
    "grass": "green",
    "snow": "white",
    "blood": "red",
    "coal": "black",
    "a banana": "yellow",
    "a lemon": "yellow",
    "a carrot": "orange",
    "milk": "white",
    "a tomato": "red",
    "the sea": "blue",
    "an elephant": "grey",
    "chocolate": "brown",
    "a flamingo": "pink",
    "an eggplant": "purple",
    "a frog": "green",
    "the sun": "yellow",
    "a polar bear": "white",
}

PLURALS = pairs(
    "child/children mouse/mice foot/feet tooth/teeth man/men woman/women goose/geese"
    " leaf/leaves knife/knives city/cities baby/babies box/boxes sheep/sheep fish/fish ox/oxen"
    " person/people wolf/wolves story/stories"
)

PAST_TENSES = pairs(
    "go/went eat/ate see/saw run/ran take/took give/gave come/came write/wrote drink/drank"
    " sing/sang swim/swam buy/bought think/thought bring/brought speak/spoke fly/flew"
    " know/knew sleep/slept make/made find/found"
)

ELEMENTS = dict(
    zip(
        "hydrogen helium carbon nitrogen oxygen sodium iron copper silver gold lead zinc".split(),
        "H He C N O Na Fe Cu Ag Au Pb Zn".split(),
    )
)

TRANSLATIONS = {
    "French": dict(
        zip(
            "hello,goodbye,thank you,cat,dog,water,bread,house,yes,no".split(","),
            "bonjour,au revoir,merci,chat,chien,eau,pain,maison,oui,non".split(","),
        )
    ),
    "Spanish": dict(
        zip(
            "hello,goodbye,thank you,cat,dog,water,bread,house,yes,no".split(","),
            "hola,adios,gracias,gato,perro,agua,pan,casa,si,no".split(","),
        )
    ),
    "German": dict(
        zip(
            "hello,goodbye,thank you,cat,dog,water,bread,house,yes,no".split(","),
            "hallo,tschuss,danke,Katze,Hund,Wasser,Brot,Haus,ja,nein".split(","),
        )
    ),
    "Italian": dict(
        zip(
            "hello,goodbye,thank you,cat,dog,water,bread,house,yes,no".split(","),
            "ciao,arrivederci,grazie,gatto,cane,acqua,pane,casa,si,no".split(","),
        )
    ),
}

MONTHS = (
    "January February March April May June July August September October November December".split()
)

DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()

NAMES = (
    "Anna Ben Clara David Emma Felix Grace Henry Ivan Julia Karl Laura Marco Nina Oscar Paul Rosa"
    " Sam Tina Victor Wendy Yuki Zoe Alice Bob Carol Dan Eve Frank Gina Hugo Ida Jack Kate Leo"
    " Maria Noah Olga Peter Rita Sven Tom Uma Vera Will Adam Bella Chris Diana Eric Fiona George"
    " Hannah Ian Jane Kevin Lucy Max Nora Oliver Pia Robert Sarah Tim Anders Marta Elena Pablo"
    " Priya Ravi Chen Mei Omar Layla Ahmed Fatima Kofi Amara".split()
)

CITIES = (
    sorted(set(CAPITALS.values()))
    + "Munich Milan Barcelona Hamburg Zurich Geneva Porto Lyon Naples Boston Chicago Seattle Denver"
    " Austin Toronto Sydney Mumbai Osaka Shanghai Dubai Prague".split()
)

WORDS = (
    "apple bread chair table house mouse plant stone water light night train green black white"
    " brown happy smile music river ocean beach cloud storm sugar honey lemon grape peach melon"
    " onion tiger zebra horse sheep goose eagle snake whale shark spoon knife plate glass clock"
    " phone paper pencil book door window wall floor roof road bridge garden flower tree leaf grass"
    " bird fish frog bear wolf lion duck goat cat dog cow pig hen fox owl bee ant sun moon star sky"
    " rain snow wind fire ice sand hill lake sea ship boat car bus bike plane wheel key lock box"
    " bag hat shoe coat shirt ring gold silver iron milk cheese butter egg rice soup cake pie tea"
    " coffee juice salt pepper king queen prince knight castle dragon magic story song dance game"
    " ball toy doll robot computer banana orange cherry potato tomato carrot rabbit monkey kitten"
    " puppy".split()
)

COLORS = "red blue green yellow black white orange purple pink brown grey".split()

FRUITS = "apple banana cherry grape lemon mango orange peach pear plum".split()

ANIMALS = "cat dog horse cow sheep lion tiger bear wolf rabbit".split()

VEGETABLES = "carrot potato onion tomato pepper cabbage pea bean".split()

NUMBER_WORDS = "zero one two three four five six seven eight nine ten eleven twelve".split()

LISTS = {
    "fruits": FRUITS,
    "animals": ANIMALS,
    "vegetables": VEGETABLES,
    "colours": COLORS,
    "months": MONTHS,
    "days of the week": DAYS,
    "planets": "Mercury Venus Earth Mars Jupiter Saturn Uranus Neptune".split(),
    "countries": "France Germany Italy Spain Japan China India Brazil".split(),
    "cities": "Paris London Rome Tokyo Berlin Madrid Vienna Oslo".split(),
    "birds": "eagle owl duck goose swan parrot crow".split(),
    "musical instruments": "piano guitar violin flute drum trumpet".split(),
    "sports": "football tennis swimming basketball cycling running".split(),
    "drinks": "water milk tea coffee juice".split(),
    "programming languages": "Python C Java Rust Go Ruby".split(),
}

SYLLABLES = (
    "ba be bi bo da de do fa fi ga go ha ka ki ko la le li lo ma me mi mo na ne no pa pe po ra re"
    " ri ro sa se si so ta te ti to va ve vi vo za zo".split()
)
