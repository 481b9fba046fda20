"""The life of a round: opened, filled while devices deliver, closed, settled; and the conductor that moves tasks on."""
