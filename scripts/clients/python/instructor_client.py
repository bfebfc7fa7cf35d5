"""Answers as objects: it asks for a tool call whose arguments are the object."""

import instructor
from openai import OpenAI
from pydantic import BaseModel
from report import MESSAGES, OPENAI_URL, equal, fails_in_words, report

client = instructor.from_openai(OpenAI(base_url=OPENAI_URL, api_key="placeholder", max_retries=0))


class City(BaseModel):
    city: str


def create(model):
    return client.chat.completions.create(model=model, messages=MESSAGES, response_model=City, max_retries=0)


def whole():
    equal(create("sim-tools").city, "sim")


def stream():
    parts = client.chat.completions.create_partial(
        model="sim-tools", messages=MESSAGES, response_model=City, max_retries=0
    )
    equal(list(parts)[-1].city, "sim")


report({"whole": whole, "stream": stream, "tools": whole, "errors": lambda: fails_in_words(create)})
