package main

import (
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	all := []result{
		{"nuthatch", 256, 30000, 5, 10}, {"rmq", 256, 10000, 20, 100}, {"nuthatch", 256, 20000.4, 7, 12}, {"rmq", 256, 10000, 30, 90},
		{"nuthatch", 1, 1234567, 0.251, 3},
	}
	got := table([]string{"nuthatch", "rmq"}, all)
	for _, wanted := range []string{
		"| Nuthatch | 1 | 1,234,567 | 0.25 | 3.00 |\n",
		"| Nuthatch | 16 | – | – | – |\n",
		"| Nuthatch | 256 | 25,000 (20,000–30,000) | 6.00 (5.00–7.00) | 11.00 (10.00–12.00) |\n",
		"| RocksMQ | 256 | 10,000 (10,000–10,000) |",
		"With 256 appenders Nuthatch takes 2.5 times as many as RocksMQ.\n",
	} {
		if !strings.Contains(got, wanted) {
			t.Errorf("%q is not in\n%s", wanted, got)
		}
	}
}
