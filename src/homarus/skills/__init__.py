"""Skills: folders of instructions that an agent reads when a task calls for them."""
