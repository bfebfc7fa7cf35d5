package main

import (
	"context"
	"errors"
	"io"

	"clients/report"

	"github.com/sashabaranov/go-openai"
)

func connect() *openai.Client {
	config := openai.DefaultConfig("placeholder")
	config.BaseURL = report.BaseURL + "/v1"
	return openai.NewClientWithConfig(config)
}

var client = connect()

func asked(model string) openai.ChatCompletionRequest {
	return openai.ChatCompletionRequest{
		Model:    model,
		Messages: []openai.ChatCompletionMessage{{Role: "user", Content: report.Question}},
	}
}

func ask(request openai.ChatCompletionRequest) (openai.ChatCompletionMessage, error) {
	answer, err := client.CreateChatCompletion(context.Background(), request)
	if err != nil {
		return openai.ChatCompletionMessage{}, err
	}
	return answer.Choices[0].Message, nil
}

// The text of a stream whose every chunk has a choice, but for those of usage alone; and the usage.
func gather(request openai.ChatCompletionRequest) (text string, usage []openai.Usage, err error) {
	stream, err := client.CreateChatCompletionStream(context.Background(), request)
	if err != nil {
		return "", nil, err
	}
	defer stream.Close()
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return text, usage, nil
		}
		if err != nil {
			return text, usage, err
		}
		if chunk.Usage != nil {
			usage = append(usage, *chunk.Usage)
		}
		if len(chunk.Choices) > 0 {
			text += chunk.Choices[0].Delta.Content
		} else if request.StreamOptions == nil {
			return text, usage, errors.New("a chunk without a choice")
		}
	}
}

func main() {
	streams := func() ([]int64, error) {
		text, _, err := gather(asked("sim-20x0"))
		return nil, errors.Join(err, report.Equal(text, report.Twenty()))
	}
	report.Run(
		report.Feature{Name: "whole", Run: func() ([]int64, error) {
			message, err := ask(asked("sim-echo"))
			return nil, errors.Join(err, report.Equal(message.Content, report.Question))
		}},
		report.Feature{Name: "stream", Run: streams},
		report.Feature{Name: "loop", Run: streams},
		report.Feature{Name: "usage", Run: func() ([]int64, error) {
			_, bare, err := gather(asked("sim-20x0"))
			if err != nil || len(bare) > 0 {
				return nil, errors.Join(err, errors.New("usage, though nobody asked for it"))
			}
			request := asked("sim-20x0")
			request.StreamOptions = &openai.StreamOptions{IncludeUsage: true}
			_, usage, err := gather(request)
			if err != nil || len(usage) != 1 {
				return nil, errors.Join(err, errors.New("usage did not come once"))
			}
			return []int64{int64(usage[0].PromptTokens), int64(usage[0].CompletionTokens)}, nil
		}},
		report.Feature{Name: "tools", Run: func() ([]int64, error) {
			request := asked("sim-tools")
			request.Tools = []openai.Tool{{Type: "function", Function: &openai.FunctionDefinition{
				Name: "get_weather",
				Parameters: map[string]any{
					"type": "object", "properties": map[string]any{"city": map[string]string{"type": "string"}},
				},
			}}}
			first, err := ask(request)
			if err != nil {
				return nil, err
			}
			call := first.ToolCalls[0]
			err = report.Equal(call.Function.Name+call.Function.Arguments, `get_weather{"city":"sim"}`)
			request.Messages = append(request.Messages, first,
				openai.ChatCompletionMessage{Role: "tool", ToolCallID: call.ID, Content: "sunny"})
			second, err2 := ask(request)
			return nil, errors.Join(err, err2, report.Equal(second.Content, "The tool has answered."))
		}},
		report.Feature{Name: "errors", Run: func() ([]int64, error) {
			return nil, report.FailsInWords(func(model string) error { _, err := ask(asked(model)); return err })
		}},
		report.Feature{Name: "abort", Run: func() ([]int64, error) {
			stream, err := client.CreateChatCompletionStream(context.Background(), asked("sim-500x20"))
			if err != nil {
				return nil, err
			}
			_, err = stream.Recv()
			return nil, errors.Join(err, stream.Close())
		}},
	)
}
