package main

import (
	"context"
	"errors"

	"clients/report"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

var client = openai.NewClient(
	option.WithBaseURL(report.BaseURL+"/v1"), option.WithAPIKey("placeholder"), option.WithMaxRetries(0))

var weather = openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{
	Name: "get_weather",
	Parameters: openai.FunctionParameters{
		"type": "object", "properties": map[string]any{"city": map[string]string{"type": "string"}},
	},
})

func asked(model string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model:    model,
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(report.Question)},
	}
}

func ask(model string) (string, error) {
	answer, err := client.Chat.Completions.New(context.Background(), asked(model))
	if err != nil {
		return "", err
	}
	return answer.Choices[0].Message.Content, nil
}

func gather(params openai.ChatCompletionNewParams) (openai.ChatCompletionAccumulator, error) {
	all := openai.ChatCompletionAccumulator{}
	stream := client.Chat.Completions.NewStreaming(context.Background(), params)
	for stream.Next() {
		if !all.AddChunk(stream.Current()) {
			return all, errors.New("the accumulator refuses a chunk")
		}
	}
	return all, stream.Err()
}

func main() {
	report.Run(
		report.Feature{Name: "whole", Run: func() ([]int64, error) {
			text, err := ask("sim-echo")
			return nil, errors.Join(err, report.Equal(text, report.Question))
		}},
		report.Feature{Name: "stream", Run: func() ([]int64, error) {
			all, err := gather(asked("sim-20x0"))
			if err != nil {
				return nil, err
			}
			return nil, report.Equal(all.Choices[0].Message.Content, report.Twenty())
		}},
		report.Feature{Name: "loop", Run: func() ([]int64, error) {
			text := ""
			stream := client.Chat.Completions.NewStreaming(context.Background(), asked("sim-20x0"))
			for stream.Next() {
				if len(stream.Current().Choices) == 0 {
					return nil, errors.New("a chunk without a choice")
				}
				text += stream.Current().Choices[0].Delta.Content
			}
			return nil, errors.Join(stream.Err(), report.Equal(text, report.Twenty()))
		}},
		report.Feature{Name: "usage", Run: func() ([]int64, error) {
			bare, err := gather(asked("sim-20x0"))
			if err != nil || bare.Usage.TotalTokens != 0 {
				return nil, errors.Join(err, errors.New("usage, though nobody asked for it"))
			}
			params := asked("sim-20x0")
			params.StreamOptions.IncludeUsage = openai.Bool(true)
			all, err := gather(params)
			return []int64{all.Usage.PromptTokens, all.Usage.CompletionTokens}, err
		}},
		report.Feature{Name: "tools", Run: func() ([]int64, error) {
			params := asked("sim-tools")
			params.Tools = []openai.ChatCompletionToolUnionParam{weather}
			all, err := gather(params)
			if err != nil {
				return nil, err
			}
			calls := all.Choices[0].Message.ToolCalls
			if len(calls) != 1 {
				return nil, errors.New("not one call")
			}
			err = report.Equal(calls[0].Function.Name+calls[0].Function.Arguments, `get_weather{"city":"sim"}`)
			params.Messages = append(params.Messages, all.Choices[0].Message.ToParam(), openai.ToolMessage("sunny", calls[0].ID))
			second, err2 := gather(params)
			if err = errors.Join(err, err2); err != nil {
				return nil, err
			}
			return nil, report.Equal(second.Choices[0].Message.Content, "The tool has answered.")
		}},
		report.Feature{Name: "errors", Run: func() ([]int64, error) {
			return nil, report.FailsInWords(func(model string) error {
				_, err := ask(model)
				// Its Error() says the status only.
				if failed := (*openai.Error)(nil); errors.As(err, &failed) {
					return errors.New(failed.Message)
				}
				return err
			})
		}},
		report.Feature{Name: "abort", Run: func() ([]int64, error) {
			ctx, cancel := context.WithCancel(context.Background())
			stream := client.Chat.Completions.NewStreaming(ctx, asked("sim-500x20"))
			stream.Next()
			cancel()
			return nil, nil
		}},
	)
}
