"""Words that go together in everyday life: `pet` with `dog`, `invoice` with `bill`.

A question seldom uses the very word of the answer. The groups are written by hand: what people note
about their lives and their work. English; other languages do without.
"""

from collections.abc import Mapping
from functools import cache
from typing import Final

from homarus.memory.words import stemmer, stop_stems

# A group a line; a line that begins with spaces goes on with the one before.
_GROUPS: Final = """
accident crash collision hit
act actor actress acting theater audition
address street email phone number contact
adopt adopted adoption foster orphan
advice tip suggestion recommend recommendation suggest
afraid scared fear frightened phobia
africa african kenya egypt morocco nigeria
ai robot machine model neural
alcohol beer wine whiskey cocktail bar pub drunk sober
allergic allergy avoid
allergy allergic allergen peanut pollen gluten lactose reaction intolerant
america american usa states california texas florida york
angry anger mad furious
animal wildlife bird horse cow sheep goat deer bear fox whale dolphin zoo species
anime manga cartoon comic
anniversary birthday date
api endpoint token key credential secret
architect architecture building construction bridge
army navy military soldier veteran deployed marine war
art artist artwork creative
art paint painting draw drawing sketch sculpture pottery canvas gallery exhibit exhibition
  artist museum craft creative
asia asian japan china india korea thailand vietnam
award prize win won medal trophy honor
baby infant newborn
backup restore archive storage disk
bag backpack purse suitcase luggage
bank account card credit debit
basketball nba hoop court dunk
beach coast shore seaside island
beach ocean sea coast surf sand wave
big large huge small little tiny
bike bicycle cycling cyclist ride
biology chemistry physics
bird owl eagle parrot feather
bird parrot canary budgie
birthday cake candle party
birthday celebrate celebration party anniversary festive
blog vlog channel youtube instagram twitter facebook tiktok social media follower
blood pressure heart diabetes cholesterol glucose
boat ship sail kayak canoe
boat yacht sail sailing ferry cruise
book novel read reading author story library literature poem poetry fiction chapter write series
bored boring
boss manager supervisor director ceo leader
bread pasta rice noodle pizza sandwich burger taco soup
break broke broken
brother sister sibling twin
budget cost expense spend
bug error crash fail failure issue broken
build built construct
business startup company shop store launch client customer entrepreneur brand
buy bought purchase get got shop order acquire
call name named nickname
camera lens tripod
camp camping tent campfire marshmallow wilderness
cancer tumor chemotherapy oncology
car automobile suv sedan truck van tesla toyota ford honda prius
car vehicle drive truck bike bicycle motorcycle engine repair mechanic road
card poker deck
cat kitten tabby siamese
celebrate party event gathering festival holiday parade
challenge problem difficulty struggle obstacle setback hard tough issue
change transform transition
charity volunteer volunteering donate donation fundraiser community help homeless shelter cause
  nonprofit
cheese milk butter cream yogurt egg
chess board puzzle dice
child kid baby toddler son daughter birth pregnant born newborn
childhood youth grew born
choose chose pick
christmas santa tree holiday
church mass priest pastor
city town village street place downtown area neighbourhood neighborhood location paris london
  rome tokyo york boston chicago seattle berlin
clean cleaning laundry vacuum chore dishes tidy
climb climbing boulder mountain peak summit
close closed shut
clothes clothing wear dress shirt shoe jacket outfit fashion hat jewelry
clothes shirt pants jeans sweater coat skirt sock
cloud aws azure server hosting
code program programming python javascript java rust
coffee espresso latte cafe barista
cold freezing chilly
colleague coworker team
collect collection collector stamp coin
color colour red blue green yellow purple pink black white orange
comedy funny humor joke laugh
community group club organization society member join support
commute bus train drive bike
concert gig tour festival venue
config configuration setting option preference
cook chef kitchen recipe oven bake roast fry
country nation abroad england spain italy france germany japan canada mexico china india greece
  brazil australia ireland portugal thailand
crime police theft stolen steal
crypto bitcoin ethereum
customer client user
dance ballet salsa hiphop tango
dance dancing dancer ballet choreography studio
dashboard chart metric report graph
database sql postgres mysql sqlite redis
date dating romantic tinder
decide decided
decide decision choose choice chose
degree bachelor master phd doctorate major diploma
dentist tooth teeth dental braces cavity
deploy deployment release ship production staging
design designer graphic interior logo sketch
dessert cake cookie chocolate pie sweet sugar bake ice cream pastry
die died dead death passed funeral grave
diet weight healthy nutrition eat calorie lose
dislike hate annoy
distance miles kilometers far
divorce separated breakup split ex
doctor nurse hospital clinic physician checkup appointment dentist therapist
doctor physician surgeon specialist cardiologist dermatologist paediatrician pediatrician
dog puppy labrador retriever poodle terrier shepherd husky bulldog
donate donation raise fundraiser
drama romance romantic
draw drew drawing
drink coffee tea beer wine juice soda water smoothie cocktail
driver taxi uber bus train subway commute transport
drum drummer percussion
earthquake hurricane tornado flood storm
easter egg bunny
economics finance accounting
election vote candidate president senator mayor politics
email mail letter message text
engineer engineering mechanical electrical
environment climate pollution recycle sustainable green conservation
equality rights activism activist advocate justice
europe european italy france spain germany england greece
event conference meeting workshop seminar festival convention gathering fair
exam test quiz grade score
exercise gym workout fitness run running yoga jog swim training lift weights marathon race
  cycling
eye glasses vision sight lens
fabric sew sewing knit knitting crochet quilt yarn
family mother father mom dad parent brother sister sibling son daughter child kid grandma
  grandpa grandmother grandfather aunt uncle cousin niece nephew relative
fantasy magic dragon wizard
farm farmer tractor barn crop harvest
father dad daddy papa
favorite favourite prefer like love fond
feel feeling emotion happy sad angry excited nervous proud grateful upset scared anxious glad
festival fair carnival
finish complete completed
fire smoke burn flood disaster hurricane
firefighter fire rescue
fish aquarium tank goldfish
fish fishing lake rod catch
flight airline airport plane ticket
flight seat boarding departure arrival gate
flower rose tulip lily sunflower bouquet daisy
food eat meal dish recipe cook cooking bake dinner lunch breakfast snack cuisine ingredient
  delicious restaurant taste
football soccer goal pitch striker
friend buddy pal mate companion colleague neighbour neighbor roommate
friend friendship bestie
fruit apple banana orange strawberry grape berry mango peach lemon
furniture table chair sofa couch bed shelf
gadget device gear equipment
game console video play gaming gamer board chess puzzle card
game videogame xbox playstation nintendo steam console
garden gardening plant soil
garden plant flower tree grow seed vegetable rose gardening bloom
gay lesbian bisexual queer lgbt trans
geography map
gift present birthday gave receive surprise
goal achieve accomplish accomplishment achievement milestone success
good great nice amazing awesome
grandfather grandpa grandad
grandmother grandma granny nana
grief mourn loss grieving
guitar bass string acoustic
hair haircut beard
hair stylist salon barber
halloween costume pumpkin
happy happiness joy joyful
happy joy glad delighted excited thrilled
hate dislike despise
headphones speaker audio
heal healing recover recovery
health illness sick disease doctor hospital medicine medical condition diagnosis diagnosed
  symptom treatment therapy surgery pain injury allergy allergic asthma
help helped
hike hiking hiker trail trek walk
history ancient medieval century
hobby pastime interest activity enjoy leisure passion fun
holiday christmas thanksgiving easter halloween festival
home house apartment room kitchen bedroom garden furniture rent flat property mortgage
homework assignment essay thesis project
hope wish dream
horror scary thriller mystery
horse ride riding stable pony saddle
hot heat warm sunny
hotel hostel airbnb motel resort stay accommodation
house apartment condo cottage cabin mansion villa
hunt hunting trap
identity gender transgender gay lesbian lgbtq queer pride
improve improvement better progress
injury hurt accident broke broken pain sprain fracture ankle
injury injured hurt wound
insect bee butterfly ant spider
inspire inspiration motivate motivation influence encourage
instructor coach trainer mentor
instrument guitar piano violin drum flute clarinet cello saxophone trumpet ukulele
insurance policy claim coverage premium
interview candidate recruiter resume cv hiring
invite invitation guest host
invoice bill payment receipt tax charge
jewelry necklace ring bracelet pendant earring
job doctor nurse lawyer engineer teacher chef artist designer writer
job work career profession occupation employer company position role office boss salary hire
  hired promotion internship interview resign quit business
key lock door spare
kindergarten preschool daycare nursery
landlord tenant lease rent
language english spanish french german italian speak
language spanish french german japanese chinese italian learn fluent
laptop computer pc mac macbook desktop
lawyer attorney legal court judge lawsuit law
layoff fired unemployed dismissed redundant
learn learned study
leg knee ankle foot arm shoulder wrist hand back spine neck
license licence registration permit
live reside living stay
loan mortgage debt borrow lend
lonely alone isolated
lost missing misplace
love adore
magazine newspaper article news journalist
make made create build built craft design
makeup skincare beauty cosmetic perfume
manager lead boss report
marriage married husband wife spouse
martial karate judo boxing taekwondo kickboxing
math mathematics algebra calculus statistics
meat chicken beef pork steak turkey bacon sausage
mechanic garage repair fix engine brake tire oil
medicine medication pill drug dose prescription antibiotic vaccine vitamin supplement tablet
  pharmacy
meet met
meeting call appointment schedule agenda calendar
meeting standup sync retro review
memory remember reminder remind memories recall keepsake
mental stress anxiety depression therapy counseling counselor therapist mindfulness meditation
  emotional
money cost price pay budget expensive cheap afford salary invest savings debt loan bank rent
  income financial finance fund
mother mom mum mama
move moved relocate relocation apartment house home hometown settle flat
move moving relocate
movie film cinema watch show series actor director episode documentary television
music song band concert album singer sing guitar piano listen tune melody playlist
nature forest mountain river lake beach ocean sea sunset waterfall tree landscape scenery
neighbour neighbor neighborhood
nervous anxious anxiety worry worried
nickname alias username handle
novel fiction author writer
often frequently regularly usually
open opened opening
outage incident downtime alert
outdoors hike hiking camp camping trail mountain forest nature park kayak climb fishing tent
paint brush watercolor acrylic oil canvas
parade march pride rally protest
park playground swing slide bench
parking garage spot permit
passport visa border customs immigration immigrant
password login account code
perform performance stage concert show
pet dog cat puppy kitten pup rabbit hamster parrot turtle fish animal vet leash breed
phone computer laptop tablet device app software tech technology internet wifi online website
phone mobile iphone android smartphone
photo photography photographer portrait
photo picture photography camera image photograph snap shot
piano keyboard organ
picnic barbecue grill cookout
pilot plane aviation flight
plan goal dream hope want future intend aim ambition aspire
plane airport flight fly
plumber electrician contractor handyman
podcast radio broadcast episode
poem poetry poet verse
police officer detective sheriff
politics election vote government law policy mayor campaign
port ip dns host router network
pottery clay ceramic bowl vase pot mug
poverty homeless hunger
pray prayer blessing
pregnant pregnancy birth baby expecting due
printer scanner keyboard mouse monitor screen
psychology sociology philosophy
purchase expense bill receipt
rain rainy storm thunder umbrella
receive received got
recipe ingredient cook oven
refugee immigrant war
relax calm peace unwind destress stress meditate soothing
religion christian catholic muslim jewish buddhist hindu
religion church faith god pray prayer spiritual temple bible
remember forget forgot
renovate renovation remodel decorate decoration redecorate
repair fix fixed
repository git branch commit merge
reptile snake lizard turtle tortoise gecko
research study investigate
restaurant cafe dine eat bar diner menu
retire retirement pension
rock pop jazz classical rap hip country metal
room bedroom bathroom kitchen basement attic living
router wifi modem internet
run running runner jog marathon race sprint
sad sadness unhappy tears cry
sad upset grief loss died death funeral passed mourning
salary raise bonus compensation
save saving
scholarship tuition grant
school college university class course degree study student teacher professor exam graduate
  graduation education lesson learn training certificate diploma
science research scientist experiment study lab
scifi science fiction alien space
sculpture statue carving
seafood fish salmon shrimp sushi tuna lobster crab
season summer winter spring fall autumn
security encryption password vulnerability
sell sold sale auction
server host network router wifi database
shift schedule hours rota roster
shoe boot sneaker sandal heel
shop store mall market supermarket grocery groceries
show exhibit display
sick ill flu cold fever cough virus infection headache migraine nausea
sing singer vocal choir karaoke
size shoe clothing waist
ski skiing snowboard slope skate skating
sleep bed nap insomnia rest
smoke cigarette smoking tobacco vape
snow snowy winter ice
software program code coding app developer programming engineer bug
song lyric lyrics chorus track
south america brazil peru argentina colombia chile
spice pepper garlic ginger cinnamon herb
spiritual soul meditation
sport game team match play player coach tournament league championship competition basketball
  football soccer tennis baseball hockey volleyball golf score
spouse husband wife partner fiance boyfriend girlfriend date marry wedding married engaged
  engagement propose relationship divorce anniversary
star sky moon astronomy telescope planet space meteor
start begin began started launch
stock share invest investment portfolio fund
stolen theft robbery thief burglary
stop end finish quit finished
stressed stress overwhelmed pressure
student pupil classmate
subscription plan membership renew cancel
sun sunrise sunset dawn dusk
superhero marvel batman spiderman
support help encourage encouragement assist back
swim swimming pool lap dive diving snorkel
teach taught teacher lesson mentor coach instruct
teacher professor tutor instructor lecturer
team club squad teammate captain
teenager teen adolescent
tennis racket badminton court
test testing ci build pipeline
thanksgiving turkey
theater theatre play perform performance stage actor drama
theme park rollercoaster carnival circus fair
therapy therapist counselor counselling psychologist psychiatrist
timezone zone utc clock
tired exhausted fatigue burnout
tool hammer drill saw
tourist tour guide landmark sightseeing
toy doll teddy stuffed lego
train railway station rail
travel trip vacation holiday visit journey flight tour abroad explore destination fly getaway
  sightseeing
tv television netflix stream streaming
vegetable tomato potato carrot onion pepper lettuce spinach
vegetarian vegan meat diet chicken beef fish salad
version upgrade update release
vet veterinarian rabies vaccination
video film record edit clip
violin cello viola orchestra
visit visited
volcano canyon glacier desert island cliff cave
volunteer charity nonprofit shelter soup
warranty receipt refund return
weather rain snow storm sunny cold hot wind
website site web page online domain
wedding marry bride groom ceremony reception vows
weekend saturday sunday
weight heavy pounds kilo
win won victory champion championship beat
wood woodworking carpentry furniture build
write wrote written
writing write writer script screenplay blog journal essay story article draft
yoga meditation mindfulness breathing stretch pilates
"""


@cache
def kin_by_stem() -> Mapping[str, frozenset[str]]:
    """The stems that go with a stem, itself not among them."""
    stem, stop = stemmer(), stop_stems()
    known: dict[str, set[str]] = {}
    for group in _GROUPS.strip().replace("\n  ", " ").split("\n"):
        stems = {*stem(group)} - stop
        for one in stems:
            known.setdefault(one, set()).update(stems)
    return {one: frozenset(stems - {one}) for one, stems in known.items()}


def kin_of(stem: str) -> frozenset[str]:
    """What goes with a stem; nothing, for most."""
    return kin_by_stem().get(stem, frozenset())
