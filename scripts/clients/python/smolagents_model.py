from report import MESSAGES, OPENAI_URL, QUESTION, TWENTY, equal, fails_in_words, report
from smolagents import OpenAIServerModel, Tool


class Weather(Tool):
    name = "get_weather"
    description = "The weather"
    inputs = {"city": {"type": "string", "description": "where"}}
    output_type = "string"

    def forward(self, city):
        return "sunny"


def model(name):
    # By itself it waits a minute after a 429.
    return OpenAIServerModel(
        name, api_base=OPENAI_URL, api_key="placeholder", client_kwargs={"max_retries": 0}, retry=False
    )


def whole():
    equal(model("sim-echo").generate(MESSAGES).content, QUESTION)


def stream():
    equal("".join(delta.content or "" for delta in model("sim-20x0").generate_stream(MESSAGES)), TWENTY)


def usage():
    counted = [delta.token_usage for delta in model("sim-20x0").generate_stream(MESSAGES) if delta.token_usage]
    return sum(one.input_tokens for one in counted), sum(one.output_tokens for one in counted)


def tools():
    message = model("sim-tools").generate(MESSAGES, tools_to_call_from=[Weather()])
    [call] = message.tool_calls
    equal((call.function.name, "sim" in str(call.function.arguments)), ("get_weather", True))


def abort():
    deltas = model("sim-500x20").generate_stream(MESSAGES)
    next(deltas)
    deltas.close()


report(
    {
        "whole": whole,
        "stream": stream,
        "loop": stream,
        "usage": usage,
        "tools": tools,
        "errors": lambda: fails_in_words(lambda name: model(name).generate(MESSAGES)),
        "abort": abort,
    }
)
