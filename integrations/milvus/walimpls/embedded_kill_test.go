//go:build test && cgo

package walimpls

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/milvus-io/milvus/pkg/v2/streaming/util/message"
	"github.com/milvus-io/milvus/pkg/v2/streaming/util/options"
	"github.com/milvus-io/milvus/pkg/v2/streaming/util/types"
	"github.com/milvus-io/milvus/pkg/v2/streaming/walimpls"

	"nuthatch/embed/logs"
	"nuthatch/milvus"
)

const (
	// Beside childDir: the term with which it opens its channel.
	childTerm = "NUTHATCH_TEST_CHILD_TERM"
	// The processes of a test, one after the other, and what each acknowledges before it is killed.
	children    = 4
	ofEachChild = 200
)

func init() { asChild = appendUntilKilled }

func embeddedIn(dir string) milvus.Config {
	return milvus.Config{Engine: milvus.Embedded, StoreDir: dir, InitializeTimeout: time.Minute}
}

// appendUntilKilled is the process that is killed: it tells the position of each append once that is acknowledged.
func appendUntilKilled(dir string) {
	failed := func(err error) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	term, err := strconv.ParseInt(os.Getenv(childTerm), 10, 64)
	if err != nil {
		failed(err)
	}
	opener, err := NewBuilder(embeddedIn(dir)).Build()
	if err != nil {
		failed(err)
	}
	channel := types.PChannelInfo{Name: "killed", Term: term, AccessMode: types.AccessModeRW}
	w, err := opener.Open(context.Background(), &walimpls.OpenOption{Channel: channel})
	if err != nil {
		failed(err)
	}
	told := make(chan string)
	for n := range 4 {
		go func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("%d-%d-%d", term, n, i)
				at, err := w.Append(context.Background(), insert(id))
				if err != nil {
					failed(err)
				}
				told <- fmt.Sprintf("%s %s\n", id, at)
			}
		}()
	}
	for line := range told {
		// One write: a line is whole or not there.
		if _, err := os.Stdout.WriteString(line); err != nil {
			failed(err)
		}
	}
}

// childThatIsKilled appends until it has told enough, and gives what was acknowledged.
func childThatIsKilled(t *testing.T, dir string, term int64, told *acked) {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childDir+"="+dir, fmt.Sprintf("%s=%d", childTerm, term))
	child.Stderr = os.Stderr
	output, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	killed := false
	for lines := bufio.NewScanner(output); lines.Scan(); {
		id, position, ok := strings.Cut(lines.Text(), " ")
		at, err := logs.ParsePosition(position)
		if !ok || err != nil {
			// Milvus's own lines.
			continue
		}
		told.add(id, NewMessageID(at))
		if !killed && told.count() >= int(term)*ofEachChild {
			killed = true
			if err := child.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = child.Wait()
	if !killed {
		t.Fatal("the process has ended by itself")
	}
}

// A process with an embedded log is killed while it appends, several times; then everything that was acknowledged is read,
// from every policy.
func TestKilledWithItsProcess(t *testing.T) {
	ctx, dir := patient(t), t.TempDir()
	told := &acked{at: map[string]message.MessageID{}}
	for term := int64(1); term <= children; term++ {
		childThatIsKilled(t, dir, term, told)
	}
	opener := build(t, embeddedIn(dir))
	w := open(t, opener, "killed", children+1, types.AccessModeRW)
	latest, err := w.Read(ctx, walimpls.ReadOption{Name: "latest", DeliverPolicy: options.DeliverPolicyLatest()})
	if err != nil {
		t.Fatal(err)
	}
	defer latest.Close()
	last, err := w.Append(ctx, insert("last"))
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string, policy options.DeliverPolicy) []message.ImmutableMessage {
		scanner, err := w.Read(ctx, walimpls.ReadOption{Name: name, DeliverPolicy: policy})
		if err != nil {
			t.Fatal(err)
		}
		defer scanner.Close()
		return collect(t, scanner, "last")
	}
	all := read("all", options.DeliverPolicyAll())
	middle := len(all) / 2
	compared := map[string][]message.ImmutableMessage{
		"all":         all,
		"start from":  read("start from", options.DeliverPolicyStartFrom(all[middle].MessageID())),
		"start after": read("start after", options.DeliverPolicyStartAfter(all[middle].MessageID())),
		"latest":      collect(t, latest, "last"),
	}
	skipped := map[string]int{"start from": middle, "start after": middle + 1, "latest": len(all) - 1}
	checkReadFrom(t, told, compared, skipped)
	if !all[len(all)-1].MessageID().EQ(last) {
		t.Errorf("the last append is at %v, and was acknowledged at %v", all[len(all)-1].MessageID(), last)
	}
	t.Logf("%d acknowledged over %d kills, %d there", told.count(), children, len(all)-1)
}
