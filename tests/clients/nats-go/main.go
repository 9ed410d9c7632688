// Runs the shared scenario list (../SCENARIOS.md) with the unmodified nats.go client and its jetstream package.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// createKeeper makes the stream that stays throughout the run; SCENARIOS.md says why.
func createKeeper(url string) error {
	nc, err := nats.Connect(url, nats.Timeout(patience))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	bound, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err = js.CreateStream(bound, jetstream.StreamConfig{Name: "KEEPER", Subjects: []string{"keeper"}})
	return err
}

func main() {
	url := flag.String("url", "", "server to test")
	only := flag.String("only", "", "comma-separated ids")
	flag.Parse()
	if err := createKeeper(*url); err != nil {
		// The scenarios that need JetStream will say the same.
		fmt.Fprintln(os.Stderr, "no stream KEEPER:", err)
	}
	tally := map[string]int{}
	for _, part := range [][]scenario{core, accounts, streams, limits, pull, redelivery, push, keyValue, objects, batches, timed, groups, copies, counted} {
		for _, s := range part {
			if *only == "" || slices.Contains(strings.Split(*only, ","), s.id) {
				tally[runOne(*url, s)]++
			}
		}
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", tally["ok"], tally["FAIL"], tally["skip"])
	if tally["FAIL"] > 0 || tally["ok"] == 0 {
		os.Exit(1)
	}
}
