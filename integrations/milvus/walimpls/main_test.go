//go:build test

package walimpls

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/milvus-io/milvus/pkg/v2/streaming/util/types"
	"github.com/milvus-io/milvus/pkg/v2/streaming/walimpls"
	"github.com/milvus-io/milvus/pkg/v2/util/paramtable"

	"nuthatch/milvus"
	"nuthatch/milvus/internal/ports"
)

// childDir is set in the environment of a process that a test starts of itself, to kill it: the store of its embedded log.
const childDir = "NUTHATCH_TEST_CHILD_DIR"

// asChild is what such a process does; it does not return.
var asChild = func(string) { os.Exit(2) }

func TestMain(m *testing.M) {
	// Defaults only: no file, no environment, no etcd.
	paramtable.InitWithBaseTable(paramtable.NewBaseTableFromYamlOnly("none"))
	if dir := os.Getenv(childDir); dir != "" {
		asChild(dir)
	}
	os.Exit(m.Run())
}

// server is a process of the broker, on a port that it keeps when it is started again.
type server struct {
	t       *testing.T
	dir     string
	args    []string
	port    int
	process *exec.Cmd
}

// startServer starts a broker whose configuration file has this text beside port, address and store.
func startServer(t *testing.T, text string) *server {
	t.Helper()
	binary := os.Getenv("NUTHATCH_BINARY")
	if binary == "" {
		t.Fatal("NUTHATCH_BINARY names no server")
	}
	free, err := ports.Free(1)
	if err != nil {
		t.Fatal(err)
	}
	port := free[0]
	dir := t.TempDir()
	file := filepath.Join(dir, "server.conf")
	config := fmt.Sprintf("host: 127.0.0.1\nport: %d\nmax_payload: 8MB\njetstream { store_dir: %q\n%s }\n", port, filepath.Join(dir, "store"), text)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, dir: dir, port: port, args: []string{binary, "serve", "-c", file, "--console", "off"}}
	s.start()
	t.Cleanup(s.kill)
	return s
}

func (s *server) url() string { return fmt.Sprintf("nats://127.0.0.1:%d", s.port) }

func (s *server) start() {
	s.t.Helper()
	s.process = exec.Command(s.args[0], s.args[1:]...)
	stderr, err := s.process.StderrPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.process.Start(); err != nil {
		s.t.Fatal(err)
	}
	ready := make(chan bool, 1)
	go func() {
		told := regexp.MustCompile(`(?i)ready`)
		var lines []string
		for scanner := bufio.NewScanner(stderr); scanner.Scan(); {
			if len(lines) < 100 {
				lines = append(lines, scanner.Text())
			}
			if told.MatchString(scanner.Text()) {
				select {
				case ready <- true:
				default:
				}
			}
		}
		select {
		case ready <- false:
			s.t.Log(strings.Join(lines, "\n"))
		default:
		}
	}()
	if !<-ready {
		s.t.Fatal("the server did not start")
	}
}

// kill ends the server as a crash does.
func (s *server) kill() {
	if s.process != nil {
		_ = s.process.Process.Kill()
		_ = s.process.Wait()
		s.process = nil
	}
}

// inBucket is the configuration of a second log, in a bucket, for channels with the tag "log:cold".
func inBucket(t *testing.T) string {
	return fmt.Sprintf("logs { cold { store: %q } }", "file://"+t.TempDir())
}

// places are where a log may be: each gives a configuration.
var places = map[string]func(t *testing.T) milvus.Config{
	"server": func(t *testing.T) milvus.Config {
		return milvus.Config{Engine: startServer(t, "").url(), InitializeTimeout: time.Minute}
	},
	"bucket": func(t *testing.T) milvus.Config {
		config := milvus.Config{Engine: startServer(t, inBucket(t)).url(), InitializeTimeout: time.Minute}
		config.Tags = []string{"log:cold"}
		return config
	},
}

// patient is a context that a busy machine does not run out of.
func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func build(t *testing.T, config milvus.Config) walimpls.OpenerImpls {
	t.Helper()
	opener, err := NewBuilder(config).Build()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(opener.Close)
	return opener
}

func open(t *testing.T, opener walimpls.OpenerImpls, channel string, term int64, mode types.AccessMode) walimpls.WALImpls {
	t.Helper()
	option := &walimpls.OpenOption{Channel: types.PChannelInfo{Name: channel, Term: term, AccessMode: mode}}
	w, err := opener.Open(patient(t), option)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}
