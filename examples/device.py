import os
import sys

import torch
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset

from coterie import Agent
from coterie.samples import digits_model

number = int(sys.argv[1])
images, labels = load_digits(return_X_y=True)
mine = slice(number - 1, None, 3)
data = TensorDataset(torch.tensor(images[mine] / 16, dtype=torch.float32), torch.tensor(labels[mine]))
agent = Agent.register(
    os.environ.get("COTERIE_URL", "http://127.0.0.1:8080"),
    os.environ["TOKEN"],
    name=f"phone-{number}",
    home=f".coterie/phone-{number}",
    model=digits_model(),
    data=data,
)
agent.join("digits")
print(agent.run())
