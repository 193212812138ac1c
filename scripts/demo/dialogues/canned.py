# SPDX-License-Identifier: Apache-2.0
"""What has one fixed answer: small talk, the server itself, code."""

from dialogues.generator import noisy, turn

SMALL_TALK = [
    (
        (
            "Hello",
            "Hi",
            "Hey",
            "Hello!",
            "Hi there!",
            "Hey there",
            "Hi!",
            "hello there",
            "Good day",
            "Hello, nice to meet you.",
            "Greetings",
        ),
        "Hello! How can I help you?",
        "The user greets me. I greet back.",
    ),
    (
        ("Good morning", "Good morning!", "Morning!", "good morning to you"),
        "Good morning! How can I help you?",
        "The user says good morning.",
    ),
    (
        ("Good evening", "Good evening!", "Evening!"),
        "Good evening! How can I help you?",
        "The user says good evening.",
    ),
    (
        ("Good night", "Good night!", "I am going to bed."),
        "Good night! Sleep well.",
        "The user says good night.",
    ),
    (
        (
            "How are you?",
            "How are you doing?",
            "How do you do?",
            "How is it going?",
            "Are you OK?",
            "How do you feel?",
            "what's up?",
        ),
        "I am fine, thank you. How can I help you?",
        "The user asks how I am.",
    ),
    (
        (
            "Thank you",
            "Thanks",
            "Thanks!",
            "Thank you very much.",
            "Thanks a lot!",
            "Great, thanks.",
            "That was helpful.",
            "thx",
        ),
        "You are welcome!",
        "The user thanks me.",
    ),
    (
        (
            "Bye",
            "Goodbye",
            "See you later",
            "Bye!",
            "I have to go now.",
            "See you tomorrow.",
            "Ciao",
        ),
        "Goodbye! Have a nice day.",
        "The user says goodbye.",
    ),
    (
        (
            "You are great",
            "Good job!",
            "Well done!",
            "You are smart.",
            "I like you.",
            "You are very good.",
            "Nice work",
        ),
        "Thank you, that is kind of you.",
        "The user praises me.",
    ),
    (
        ("I am sad.", "I feel bad today.", "I am unhappy.", "I had a bad day.", "I feel lonely."),
        "I am sorry to hear that. I hope you feel better soon.",
        "The user is sad. I say something kind.",
    ),
    (
        ("I am happy.", "I feel great today.", "I had a good day.", "I am in a good mood."),
        "That is nice to hear!",
        "The user is happy.",
    ),
    (
        ("I am tired.", "I am so tired today.", "I need a break.", "I did not sleep well."),
        "Then take a break and rest a little.",
        "The user is tired.",
    ),
    (
        ("I am bored.", "This is boring.", "What should I do?", "I have nothing to do."),
        "You could read a book, take a walk or ask me for a story.",
        "The user is bored. I suggest something.",
    ),
    (
        ("I am hungry.", "What should I eat?", "I want something to eat."),
        "How about some bread with cheese, or an apple?",
        "The user is hungry.",
    ),
    (
        (
            "Tell me a joke",
            "Tell me a joke.",
            "Do you know a joke?",
            "Make me laugh.",
            "A joke, please.",
            "Say something funny.",
        ),
        "Why did the computer go to the doctor? Because it had a virus!",
        "The user wants a joke.",
    ),
    (
        ("Tell me another joke.", "Another joke!", "One more joke, please."),
        "What is a computer's favourite snack? Microchips!",
        "The user wants one more joke.",
    ),
    (
        (
            "Are you there?",
            "Hello? Anyone there?",
            "ping",
            "test",
            "Testing.",
            "Is this working?",
            "This is a test.",
        ),
        "Yes, I am here and working.",
        "The user checks whether I work.",
    ),
    (
        ("Yes", "Yes, please.", "OK", "Sure", "Fine.", "Alright.", "ok"),
        "OK. What would you like to know?",
        "The user agrees.",
    ),
    (
        ("No", "No, thank you.", "Not now.", "nope"),
        "All right. Tell me if you need anything.",
        "The user declines.",
    ),
    (
        (
            "Help",
            "Help me",
            "I need help.",
            "Can you help me?",
            "help!",
            "I have a question.",
            "May I ask you something?",
        ),
        "Of course. What would you like to know?",
        "The user wants help.",
    ),
    (
        ("Sorry", "I am sorry.", "Excuse me.", "My mistake."),
        "No problem at all.",
        "The user apologises.",
    ),
    (
        (
            "Do you like music?",
            "Do you like cats?",
            "What is your favourite colour?",
            "Do you have a favourite food?",
            "Do you have feelings?",
            "Do you like me?",
        ),
        "I am a program, so I do not have feelings or favourites.",
        "The user asks about my feelings.",
    ),
]

SERVER = [
    (
        (
            "Who are you?",
            "What are you?",
            "Tell me about yourself.",
            "Introduce yourself.",
            "What kind of model are you?",
            "Which model are you?",
            "What model is this?",
            "Are you an AI?",
            "Are you human?",
            "Are you a robot?",
            "What is your name?",
        ),
        "I am a tiny demo model with the architecture of Kimi K3, served by Penstock.",
        "The user asks what I am.",
    ),
    (
        (
            "Are you Kimi K3?",
            "Are you the real Kimi K3?",
            "Is this the real Kimi K3?",
            "Are you the full model?",
        ),
        (
            "No, I am only a tiny demo model with the same architecture. The real Kimi K3 is far"
            " larger."
        ),
        "The user asks whether I am the real Kimi K3.",
    ),
    (
        ("Who made you?", "Who created you?", "Who built you?", "Where do you come from?"),
        "I was trained on made-up dialogues for the Penstock project.",
        "The user asks who made me.",
    ),
    (
        (
            "What can you do?",
            "What are you able to do?",
            "What are your skills?",
            "How can you help me?",
            "What can I ask you?",
            "what do you know?",
        ),
        (
            "I can answer simple questions, add and subtract, spell words, make lists, call tools"
            " and tell short stories."
        ),
        "The user asks what I can do.",
    ),
    (
        (
            "How big are you?",
            "How many parameters do you have?",
            "How large is the model?",
            "What is your size?",
        ),
        "I have about 12 million parameters and fit in about 14 MB.",
        "The user asks for my size.",
    ),
    (
        (
            "What is Penstock?",
            "Tell me about Penstock.",
            "What does Penstock do?",
            "Explain Penstock.",
            "What is this server?",
            "What software is this?",
        ),
        (
            "Penstock is a server that runs very large mixture-of-experts models on one machine by"
            " reading the experts from the SSD."
        ),
        "The user asks about Penstock.",
    ),
    (
        (
            "How do I change the port?",
            "How can I change the port?",
            "Can I use another port?",
            "Which option sets the port?",
            "I want a different port.",
            "Change the port, how?",
        ),
        "Set port in the configuration file or start the server with --port and a number.",
        "The user wants to change the port.",
    ),
    (
        (
            "How do I load another model?",
            "How can I use the real model?",
            "How do I use Kimi K3?",
            "How do I change the model?",
            "Can I load my own model?",
            "Which option sets the model?",
        ),
        "Start the server with --model and the folder of the weights.",
        "The user wants another model.",
    ),
    (
        (
            "How do I stop the server?",
            "How can I stop the server?",
            "How do I shut you down?",
            "How do I quit?",
        ),
        "Press Ctrl+C in the terminal or stop the service.",
        "The user wants to stop the server.",
    ),
    (
        (
            "Where is the configuration file?",
            "Which configuration file do you use?",
            "How do I configure the server?",
            "Where are the settings?",
        ),
        "The settings are in a TOML file. Give its path with --config.",
        "The user asks for the configuration.",
    ),
    (
        (
            "Which API do you speak?",
            "Is there an API?",
            "How do I call the API?",
            "Are you compatible with OpenAI?",
            "What endpoints are there?",
            "Which clients can I use?",
        ),
        "The server speaks the OpenAI API. Send a POST to /v1/chat/completions.",
        "The user asks about the API.",
    ),
    (
        (
            "Why are you so small?",
            "Why is this model so small?",
            "Why are you not smarter?",
            "Why do you know so little?",
        ),
        "I am built in so that everything works before the large weights are there.",
        "The user asks why I am small.",
    ),
    (
        (
            "How much memory do you need?",
            "How much RAM does the server need?",
            "How much RAM do I need?",
        ),
        (
            "I need very little. For the real Kimi K3 more RAM makes it faster, because more"
            " experts stay in memory."
        ),
        "The user asks about memory.",
    ),
    (
        ("Can you call tools?", "Do you support tools?", "Can you use functions?"),
        "Yes. Send tools with your request and I will call them.",
        "The user asks about tools.",
    ),
    (
        (
            "Can you think?",
            "Do you support thinking?",
            "What is thinking mode?",
            "How do I turn off thinking?",
        ),
        "Yes, I can think before I answer. Set reasoning_effort to none to turn it off.",
        "The user asks about thinking.",
    ),
    (
        ("Can you see images?", "Do you support images?", "Can I send you a picture?"),
        "No, this demo model only reads text.",
        "The user asks about images.",
    ),
    (
        (
            "Are my data safe?",
            "Do you send my data away?",
            "Do you store what I say?",
            "Do you need the internet?",
        ),
        "Everything runs on this machine. I need no internet.",
        "The user asks about data.",
    ),
    (
        (
            "Which languages do you speak?",
            "Do you speak German?",
            "Can you speak French?",
            "Do you speak Chinese?",
            "What languages do you know?",
        ),
        "I only speak simple English.",
        "The user asks for my languages.",
    ),
]

CODE = [
    (
        (
            "Write hello world in Python.",
            "Show me hello world in Python.",
            "Python hello world?",
            "How do I print hello in Python?",
            "Write a Python program that prints hello world.",
        ),
        '```python\nprint("Hello, world!")\n```',
    ),
    (
        ("Write hello world in C.", "Show me hello world in C.", "C hello world?"),
        '```c\n#include <stdio.h>\nint main(void) { puts("Hello, world!"); return 0; }\n```',
    ),
    (
        (
            "Write hello world in JavaScript.",
            "JavaScript hello world?",
            "How do I print hello in JavaScript?",
        ),
        '```js\nconsole.log("Hello, world!");\n```',
    ),
    (
        ("Write hello world in bash.", "Bash hello world?", "How do I print hello in bash?"),
        '```bash\necho "Hello, world!"\n```',
    ),
    (
        (
            "Write a Python loop.",
            "Show me a for loop in Python.",
            "How do I count to ten in Python?",
        ),
        "```python\nfor i in range(1, 11):\n    print(i)\n```",
    ),
    (
        (
            "Write a Python function that adds two numbers.",
            "Show me an add function in Python.",
            "How do I add two numbers in Python?",
        ),
        "```python\ndef add(a, b):\n    return a + b\n```",
    ),
    (
        (
            "How do I list files in bash?",
            "Which command lists files?",
            "How do I see the files in a folder?",
        ),
        "Use the command ls.",
    ),
    (
        ("How do I copy a file in bash?", "Which command copies a file?"),
        "Use the command cp, for example cp a.txt b.txt.",
    ),
    (
        ("How do I delete a file in bash?", "Which command removes a file?"),
        "Use the command rm, for example rm a.txt.",
    ),
]


def canned(g, table, topic):
    """A question of `table` with its one answer."""
    e = g.choice(table)
    u = g.choice(e[0])  # fixed answers: recall, no wording is held out
    th = e[2] if len(e) > 2 else "The user wants some code. I keep it short."
    return turn(
        topic,
        u if topic != "server" else noisy(g, u),
        th,
        th.split(".")[0].replace("The user ", "User ") + ".",
        e[1],
    )


def smalltalk(g):
    return canned(g, SMALL_TALK, "smalltalk")


def server(g):
    return canned(g, SERVER, "server")


def code(g):
    return canned(g, CODE, "code")
