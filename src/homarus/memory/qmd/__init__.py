"""The qmd program as a memory backend."""

from homarus.memory.qmd.backend import create as create
from homarus.memory.qmd.backend import sync_interval_s as sync_interval_s
from homarus.memory.qmd.collections import read_document as read_document
