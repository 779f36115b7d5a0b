"""Tests of several nodes, each a process of its own, with a NATS server of their own."""
import os
import sys

sys.path.append(os.path.dirname(os.path.abspath(__file__)))
