"""The device agent: joining tasks, working on rounds, delivering, and following the owner's decisions."""
