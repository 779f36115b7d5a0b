"""A smolagents CodeAgent whose code runs in a sandbox: `python smolagents_agent.py`.

Needs no key: the model is a recording of two replies. Put any model of smolagents in its place.
"""
from smolagents import ChatMessage, CodeAgent, Model, tool

from droste.integrations.smolagents import DrosteExecutor

REPLIES = ["I ask for the orders and keep them.\n<code>\norders = load_orders(2026)\n"
           "print(len(orders), 'orders')\n</code>",
           "Now the total.\n<code>\nfinal_answer(sum(order['amount'] for order in orders))\n"
           "</code>"]


class Recorded(Model):
    """Answers with the recorded replies, one after the other."""

    def generate(self, messages, **kwargs):
        return ChatMessage(role="assistant", content=REPLIES[len(messages) // 2 - 1])


@tool
def load_orders(year: int) -> list:
    """Loads the orders of a year. It runs in this program, which may have a database's password.

    Args:
        year: The year.
    """
    return [{"id": n, "year": year, "amount": 100 + n} for n in range(5)]


with CodeAgent(tools=[load_orders], model=Recorded(), executor=DrosteExecutor(),
               verbosity_level=0) as agent:
    print(agent.run("What is the total of the orders of 2026?"))
