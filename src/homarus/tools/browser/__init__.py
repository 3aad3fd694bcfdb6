"""The browser of agents: a Chromium with a profile for each agent, behind the network guard."""
