import os
import sys

from coterie import Agent
from coterie.samples import digits, digits_model

number = int(sys.argv[1])
split = digits(3)
agent = Agent.register(
    os.environ.get("COTERIE_URL", "http://127.0.0.1:8080"),
    os.environ["TOKEN"],
    name=f"phone-{number}",
    home=f".coterie/phone-{number}",
    model=digits_model(),
    data=split.shards[number - 1],
    test_data=split.test,
)
agent.join("digits")
print(agent.run())
