// Package report holds what every program here has in common: the questions, and the lines that scripts/clients.ts reads.
package report

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

const Question = "Say this back, word by word"

var BaseURL = os.Getenv("BASE_URL")

// Twenty is what the model sim-20x0 answers.
func Twenty() string {
	words := make([]string, 20)
	for i := range words {
		words[i] = fmt.Sprintf("t%d", i)
	}
	return strings.Join(words, " ")
}

// Feature returns the tokens in and out that it counted, or nil.
type Feature struct {
	Name string
	Run  func() ([]int64, error)
}

func Equal(found, expected string) error {
	if found != expected {
		return fmt.Errorf("%q instead of %q", found, expected)
	}
	return nil
}

// FailsInWords fails unless ask does, in the service's words, for either status.
func FailsInWords(ask func(model string) error) error {
	for _, status := range []string{"401", "429"} {
		err := ask("sim-error-" + status)
		if err == nil {
			return fmt.Errorf("no error for %s", status)
		}
		if !strings.Contains(err.Error(), "the simulated model answers "+status) {
			return fmt.Errorf("%s: %w", status, err)
		}
	}
	return nil
}

// Run prints a line per feature, and waits for one after each.
func Run(features ...Feature) {
	lines := bufio.NewReader(os.Stdin)
	for _, feature := range features {
		line := struct {
			Feature string  `json:"feature"`
			OK      bool    `json:"ok"`
			Detail  string  `json:"detail,omitempty"`
			Counted []int64 `json:"counted,omitempty"`
		}{Feature: feature.Name}
		counted, err := feature.Run()
		line.OK, line.Counted = err == nil, counted
		if err != nil {
			line.Detail = err.Error()
		}
		text, _ := json.Marshal(line)
		fmt.Println(string(text))
		_, _ = lines.ReadString('\n')
	}
}
