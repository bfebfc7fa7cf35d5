import com.openai.client.OpenAIClient;
import com.openai.client.okhttp.OpenAIOkHttpClient;
import com.openai.core.JsonValue;
import com.openai.core.http.StreamResponse;
import com.openai.helpers.ChatCompletionAccumulator;
import com.openai.models.FunctionDefinition;
import com.openai.models.FunctionParameters;
import com.openai.models.chat.completions.ChatCompletion;
import com.openai.models.chat.completions.ChatCompletionChunk;
import com.openai.models.chat.completions.ChatCompletionCreateParams;
import com.openai.models.chat.completions.ChatCompletionFunctionTool;
import com.openai.models.chat.completions.ChatCompletionStreamOptions;
import com.openai.models.completions.CompletionUsage;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Callable;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/** OpenAI's own client. Prints a line per feature for scripts/clients.ts, and waits for one after each. */
public final class Main {
    private static final String QUESTION = "Say this back, word by word";
    private static final String TWENTY =
            IntStream.range(0, 20).mapToObj(index -> "t" + index).collect(Collectors.joining(" "));
    private static final BufferedReader LINES = new BufferedReader(new InputStreamReader(System.in));
    private static final OpenAIClient CLIENT =
            OpenAIOkHttpClient.builder()
                    .baseUrl(System.getenv("BASE_URL") + "/v1")
                    .apiKey("placeholder")
                    .maxRetries(0)
                    .build();

    private static ChatCompletionCreateParams.Builder asked(String model) {
        return ChatCompletionCreateParams.builder().model(model).addUserMessage(QUESTION);
    }

    private static ChatCompletion ask(String model) {
        return CLIENT.chat().completions().create(asked(model).build());
    }

    private static ChatCompletion gather(ChatCompletionCreateParams params) {
        ChatCompletionAccumulator all = ChatCompletionAccumulator.create();
        try (StreamResponse<ChatCompletionChunk> chunks = CLIENT.chat().completions().createStreaming(params)) {
            chunks.stream().forEach(all::accumulate);
        }
        return all.chatCompletion();
    }

    private static void equal(Object found, Object expected) {
        if (!expected.equals(found)) throw new IllegalStateException(found + " instead of " + expected);
    }

    private static String text(ChatCompletion answer) {
        return answer.choices().get(0).message().content().orElse("");
    }

    /** The feature gives its counts as a JSON array, or null. */
    private static void feature(String name, Callable<String> run) throws Exception {
        String line;
        try {
            String counted = run.call();
            line = "\"ok\":true" + (counted == null ? "" : ",\"counted\":" + counted);
        } catch (Throwable error) {
            String words = String.valueOf(error).replaceAll("[\"\\\\\\p{Cntrl}]", " ");
            line = "\"ok\":false,\"detail\":\"" + words + "\"";
        }
        System.out.println("{\"feature\":\"" + name + "\"," + line + "}");
        LINES.readLine();
    }

    public static void main(String[] args) throws Exception {
        feature("whole", () -> {
            equal(text(ask("sim-echo")), QUESTION);
            return null;
        });
        feature("stream", () -> {
            equal(text(gather(asked("sim-20x0").build())), TWENTY);
            return null;
        });
        feature("loop", () -> {
            StringBuilder text = new StringBuilder();
            try (StreamResponse<ChatCompletionChunk> chunks =
                    CLIENT.chat().completions().createStreaming(asked("sim-20x0").build())) {
                chunks.stream()
                        .forEach(chunk -> text.append(chunk.choices().get(0).delta().content().orElse("")));
            }
            equal(text.toString(), TWENTY);
            return null;
        });
        feature("usage", () -> {
            equal(gather(asked("sim-20x0").build()).usage(), Optional.empty());
            ChatCompletionStreamOptions options = ChatCompletionStreamOptions.builder().includeUsage(true).build();
            CompletionUsage usage = gather(asked("sim-20x0").streamOptions(options).build()).usage().orElseThrow();
            return "[" + usage.promptTokens() + "," + usage.completionTokens() + "]";
        });
        feature("tools", () -> {
            FunctionParameters parameters =
                    FunctionParameters.builder()
                            .putAdditionalProperty("type", JsonValue.from("object"))
                            .putAdditionalProperty(
                                    "properties", JsonValue.from(Map.of("city", Map.of("type", "string"))))
                            .build();
            FunctionDefinition weather =
                    FunctionDefinition.builder().name("get_weather").parameters(parameters).build();
            ChatCompletionCreateParams params =
                    asked("sim-tools")
                            .addTool(ChatCompletionFunctionTool.builder().function(weather).build())
                            .build();
            var call = gather(params).choices().get(0).message().toolCalls().orElseThrow().get(0).asFunction();
            equal(call.function().name() + call.function().arguments(), "get_weather{\"city\":\"sim\"}");
            return null;
        });
        feature("errors", () -> {
            for (int status : new int[] {401, 429}) {
                try {
                    ask("sim-error-" + status);
                } catch (RuntimeException error) {
                    if (error.getMessage().contains("the simulated model answers " + status)) continue;
                    throw error;
                }
                throw new IllegalStateException("no error for " + status);
            }
            return null;
        });
        feature("abort", () -> {
            try (StreamResponse<ChatCompletionChunk> chunks =
                    CLIENT.chat().completions().createStreaming(asked("sim-500x20").build())) {
                chunks.stream().findFirst();
            }
            return null;
        });
        System.exit(0);
    }
}
