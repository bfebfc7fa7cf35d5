package main

import (
	"context"
	"errors"

	"clients/report"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
)

var client = anthropic.NewClient(
	option.WithBaseURL(report.BaseURL), option.WithAPIKey("placeholder"), option.WithMaxRetries(0))

var weather = anthropic.ToolUnionParamOfTool(anthropic.ToolInputSchemaParam{
	Properties: map[string]any{"city": map[string]string{"type": "string"}},
}, "get_weather")

func asked(model string) anthropic.MessageNewParams {
	return anthropic.MessageNewParams{
		Model:     anthropic.Model(model),
		MaxTokens: 1000,
		Messages:  []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(report.Question))},
	}
}

func ask(model string) (string, error) {
	answer, err := client.Messages.New(context.Background(), asked(model))
	if err != nil {
		return "", err
	}
	return answer.Content[0].Text, nil
}

func gather(params anthropic.MessageNewParams) (anthropic.Message, error) {
	all := anthropic.Message{}
	stream := client.Messages.NewStreaming(context.Background(), params)
	for stream.Next() {
		if err := all.Accumulate(stream.Current()); err != nil {
			return all, err
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
			return nil, report.Equal(all.Content[0].Text, report.Twenty())
		}},
		report.Feature{Name: "loop", Run: func() ([]int64, error) {
			text := ""
			stream := client.Messages.NewStreaming(context.Background(), asked("sim-20x0"))
			for stream.Next() {
				text += stream.Current().Delta.Text
			}
			return nil, errors.Join(stream.Err(), report.Equal(text, report.Twenty()))
		}},
		report.Feature{Name: "usage", Run: func() ([]int64, error) {
			all, err := gather(asked("sim-20x0"))
			return []int64{all.Usage.InputTokens, all.Usage.OutputTokens}, err
		}},
		report.Feature{Name: "tools", Run: func() ([]int64, error) {
			params := asked("sim-tools")
			params.Tools = []anthropic.ToolUnionParam{weather}
			first, err := gather(params)
			if err != nil {
				return nil, err
			}
			call := first.Content[0]
			err = report.Equal(call.Name+string(call.Input), `get_weather{"city":"sim"}`)
			params.Messages = append(params.Messages, first.ToParam(),
				anthropic.NewUserMessage(anthropic.NewToolResultBlock(call.ID, "sunny", false)))
			second, err2 := gather(params)
			if err = errors.Join(err, err2); err != nil {
				return nil, err
			}
			return nil, report.Equal(second.Content[0].Text, "The tool has answered.")
		}},
		report.Feature{Name: "errors", Run: func() ([]int64, error) {
			return nil, report.FailsInWords(func(model string) error { _, err := ask(model); return err })
		}},
		report.Feature{Name: "abort", Run: func() ([]int64, error) {
			ctx, cancel := context.WithCancel(context.Background())
			stream := client.Messages.NewStreaming(ctx, asked("sim-500x20"))
			stream.Next()
			cancel()
			return nil, nil
		}},
	)
}
