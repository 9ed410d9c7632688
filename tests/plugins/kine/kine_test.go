package plugins

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"nuthatch.invalid/plugins/kine/process"
)

const patience = 60 * time.Second

// shared is the server of all tests but the one that kills its own.
var shared string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "kine")
	if err != nil {
		panic(err)
	}
	server := process.RunServer(&process.Options{Port: -1, JetStream: true, StoreDir: dir})
	shared = server.ClientURL()
	status := m.Run()
	server.Shutdown()
	os.RemoveAll(dir)
	os.Exit(status)
}

// program starts a program, which is killed at the end of the test, and waits for a line of its log.
func program(t *testing.T, ready, name string, args ...string) {
	t.Helper()
	command := exec.Command(name, args...)
	read, write, err := os.Pipe()
	must(t, err)
	command.Stdout, command.Stderr = write, write
	must(t, command.Start())
	write.Close()
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	found := make(chan struct{})
	go func() {
		lines, waiting := bufio.NewScanner(read), true
		for lines.Scan() {
			if waiting && strings.Contains(lines.Text(), ready) {
				waiting = false
				close(found)
			}
		}
		read.Close()
	}()
	select {
	case <-found:
	case <-time.After(patience):
		t.Fatalf("%s does not say %q", name, ready)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// kine starts kine on a server, and gives a client of etcd's interface.
func kine(t *testing.T, natsURL, bucket string) *clientv3.Client {
	t.Helper()
	dir, err := os.MkdirTemp("", "kine") // shorter than t.TempDir(), for a socket's path
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	endpoint := "unix://" + filepath.Join(dir, "kine.sock")
	program(t, "Kine available at", os.Getenv("KINE_BINARY"), "--listen-address", endpoint, "--metrics-bind-address", "0",
		"--endpoint", fmt.Sprintf("%s?noEmbed&bucket=%s", natsURL, bucket))
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: patience})
	must(t, err)
	t.Cleanup(func() { client.Close() })
	return client
}

// put writes as the API server of Kubernetes does, which is what kine takes: if the key has not changed since a revision.
func put(ctx context.Context, client *clientv3.Client, key, value string, since int64, options ...clientv3.OpOption) (*clientv3.TxnResponse, error) {
	return client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", since)).
		Then(clientv3.OpPut(key, value, options...)).Else(clientv3.OpGet(key)).Commit()
}

func mustPut(t *testing.T, client *clientv3.Client, key, value string, since int64, options ...clientv3.OpOption) int64 {
	t.Helper()
	response, err := put(t.Context(), client, key, value, since, options...)
	must(t, err)
	if !response.Succeeded {
		t.Fatalf("%s has another revision than %d: %v", key, since, response.Responses)
	}
	return response.Header.Revision
}

func expectValue(t *testing.T, client *clientv3.Client, key, value string, options ...clientv3.OpOption) *mvccpb.KeyValue {
	t.Helper()
	response, err := client.Get(t.Context(), key, options...)
	must(t, err)
	if value == "" {
		if len(response.Kvs) != 0 {
			t.Fatalf("%s is there: %v", key, response.Kvs)
		}
		return nil
	}
	if len(response.Kvs) != 1 || string(response.Kvs[0].Value) != value {
		t.Fatalf("%s is not %q: %v", key, value, response.Kvs)
	}
	return response.Kvs[0]
}

func TestValuesAndTransactions(t *testing.T) {
	client := kine(t, shared, "values")
	first := mustPut(t, client, "/registry/pods/a", "one", 0)
	again, err := put(t.Context(), client, "/registry/pods/a", "other", 0)
	must(t, err)
	if again.Succeeded {
		t.Fatal("a key was created twice")
	}
	second := mustPut(t, client, "/registry/pods/a", "two", first)
	if second <= first {
		t.Fatalf("revision %d after %d", second, first)
	}
	stale, err := put(t.Context(), client, "/registry/pods/a", "three", first)
	must(t, err)
	if stale.Succeeded || string(stale.Responses[0].GetResponseRange().Kvs[0].Value) != "two" {
		t.Fatalf("an update of an old revision: %v", stale)
	}
	now := expectValue(t, client, "/registry/pods/a", "two")
	if now.CreateRevision != first || now.ModRevision != second {
		t.Fatalf("created at %d, changed at %d: %v", first, second, now)
	}
	expectValue(t, client, "/registry/pods/a", "one", clientv3.WithRev(first))
	deleted, err := client.Txn(t.Context()).If(clientv3.Compare(clientv3.ModRevision("/registry/pods/a"), "=", second)).
		Then(clientv3.OpDelete("/registry/pods/a")).Else(clientv3.OpGet("/registry/pods/a")).Commit()
	must(t, err)
	if !deleted.Succeeded {
		t.Fatalf("not deleted: %v", deleted)
	}
	expectValue(t, client, "/registry/pods/a", "")
}

func TestLists(t *testing.T) {
	client := kine(t, shared, "lists")
	for number := range 25 {
		mustPut(t, client, fmt.Sprintf("/registry/pods/%02d", number), strconv.Itoa(number), 0)
	}
	mustPut(t, client, "/registry/nodes/x", "apart", 0)
	var seen []string
	from, end := "/registry/pods/", clientv3.GetPrefixRangeEnd("/registry/pods/")
	for {
		page, err := client.Get(t.Context(), from, clientv3.WithRange(end), clientv3.WithLimit(10))
		must(t, err)
		for _, kv := range page.Kvs {
			seen = append(seen, string(kv.Key))
		}
		if !page.More {
			break
		}
		from = seen[len(seen)-1] + "\x00"
	}
	if len(seen) != 25 || seen[0] != "/registry/pods/00" || seen[24] != "/registry/pods/24" {
		t.Fatalf("a list in pages: %v", seen)
	}
	counted, err := client.Get(t.Context(), "/registry/pods/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	must(t, err)
	if counted.Count != 25 {
		t.Fatalf("counted %d", counted.Count)
	}
}

// next gives the next event that a watcher gets.
func next(t *testing.T, events <-chan *clientv3.Event) *clientv3.Event {
	t.Helper()
	select {
	case event, ok := <-events:
		if !ok {
			t.Fatal("the watch has ended")
		}
		return event
	case <-time.After(patience):
		t.Fatal("no event comes")
	}
	return nil
}

func watch(t *testing.T, client *clientv3.Client, prefix string, revision int64) <-chan *clientv3.Event {
	events := make(chan *clientv3.Event, 1024)
	go func() {
		defer close(events)
		for response := range client.Watch(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithRev(revision), clientv3.WithPrevKV()) {
			for _, event := range response.Events {
				events <- event
			}
		}
	}()
	return events
}

func TestWatchesSeeAllThatHappenedSinceARevision(t *testing.T) {
	client := kine(t, shared, "watches")
	first := mustPut(t, client, "/registry/pods/a", "one", 0)
	second := mustPut(t, client, "/registry/pods/a", "two", first)
	mustPut(t, client, "/registry/nodes/x", "apart", 0)
	events := watch(t, client, "/registry/pods/", first)
	if event := next(t, events); !event.IsCreate() || event.Kv.ModRevision != first || string(event.Kv.Value) != "one" {
		t.Fatalf("the first event: %v", event)
	}
	if event := next(t, events); !event.IsModify() || string(event.PrevKv.Value) != "one" || string(event.Kv.Value) != "two" {
		t.Fatalf("the second event: %v", event)
	}
	_, err := client.Txn(t.Context()).If(clientv3.Compare(clientv3.ModRevision("/registry/pods/a"), "=", second)).
		Then(clientv3.OpDelete("/registry/pods/a")).Else(clientv3.OpGet("/registry/pods/a")).Commit()
	must(t, err)
	if event := next(t, events); event.Type != clientv3.EventTypeDelete || string(event.Kv.Key) != "/registry/pods/a" {
		t.Fatalf("the third event: %v", event)
	}
}

func TestLeasesEndKeys(t *testing.T) {
	client := kine(t, shared, "leases")
	lease, err := client.Grant(t.Context(), 2)
	must(t, err)
	created := mustPut(t, client, "/registry/leases/a", "short", 0, clientv3.WithLease(lease.ID))
	mustPut(t, client, "/registry/leases/b", "long", 0)
	events := watch(t, client, "/registry/leases/a", created+1)
	if event := next(t, events); event.Type != clientv3.EventTypeDelete {
		t.Fatalf("the end of a lease: %v", event)
	}
	expectValue(t, client, "/registry/leases/a", "")
	expectValue(t, client, "/registry/leases/b", "long")
}

func TestCompactedRevisionsAreRefused(t *testing.T) {
	client := kine(t, shared, "compacted")
	first := mustPut(t, client, "/registry/pods/a", "one", 0)
	revision := first
	for number := range 20 {
		revision = mustPut(t, client, "/registry/pods/a", strconv.Itoa(number), revision)
	}
	_, err := client.Compact(t.Context(), revision)
	must(t, err)
	expectValue(t, client, "/registry/pods/a", "19")
	_, err = client.Get(t.Context(), "/registry/pods/a", clientv3.WithRev(first))
	if !errors.Is(err, rpctypes.ErrCompacted) {
		t.Fatalf("a revision that is gone: %v", err)
	}
}

// What was acknowledged is there after the server was killed, and a watch that was open goes on without a gap.
func TestServerIsKilledUnderKine(t *testing.T) {
	options := process.Options{Port: -1, JetStream: true, StoreDir: t.TempDir()}
	running := process.RunServer(&options)
	client := kine(t, running.ClientURL(), "killed")
	base := mustPut(t, client, "/registry/base", "base", 0)
	events := watch(t, client, "/registry/pods/", base)
	known := map[string]string{}
	write := func(number int) {
		key, value := fmt.Sprintf("/registry/pods/%03d", number), strconv.Itoa(number)
		until := time.Now().Add(patience)
		for time.Now().Before(until) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			response, err := put(ctx, client, key, value, 0)
			cancel()
			// A refused one was there: an attempt without an answer had come through.
			if err == nil && (response.Succeeded || string(response.Responses[0].GetResponseRange().Kvs[0].Value) == value) {
				known[key] = value
				return
			}
		}
		t.Fatalf("%s was not written", key)
	}
	for number := range 100 {
		write(number)
	}
	address, err := url.Parse(running.ClientURL())
	must(t, err)
	options.Port, err = strconv.Atoi(address.Port())
	must(t, err)
	running.Shutdown()
	running = process.RunServer(&options)
	defer running.Shutdown()
	for number := range 100 {
		write(100 + number)
	}
	response, err := client.Get(t.Context(), "/registry/pods/", clientv3.WithPrefix())
	must(t, err)
	if len(response.Kvs) != 200 {
		t.Fatalf("%d keys of 200", len(response.Kvs))
	}
	for _, kv := range response.Kvs {
		if known[string(kv.Key)] != string(kv.Value) {
			t.Fatalf("%s is %s", kv.Key, kv.Value)
		}
	}
	for number := range 200 {
		if event := next(t, events); string(event.Kv.Key) != fmt.Sprintf("/registry/pods/%03d", number) {
			t.Fatalf("event %d is of %s", number, event.Kv.Key)
		}
	}
}
