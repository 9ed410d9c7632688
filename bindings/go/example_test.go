package embed_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"nuthatch/embed"
)

func check[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func Example() {
	dir := check(os.MkdirTemp("", "nuthatch"))
	defer os.RemoveAll(dir)

	broker := check(embed.Start(embed.Options{StoreDir: dir}))
	defer broker.Close()
	conn := check(nats.Connect("", nats.InProcessServer(broker)))
	defer conn.Close()
	js, ctx := check(jetstream.New(conn)), context.Background()

	check(js.CreateStream(ctx, jetstream.StreamConfig{Name: "LOG", Subjects: []string{"log.>"}}))
	ack := check(js.Publish(ctx, "log.first", []byte("hello")))
	stored := check(check(js.Stream(ctx, "LOG")).GetMsg(ctx, ack.Sequence))
	fmt.Printf("%s %d: %s\n", stored.Subject, stored.Sequence, stored.Data)
	// Output: log.first 1: hello
}
