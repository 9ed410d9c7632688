package migration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"nuthatch/milvus/internal/ports"
)

const patience = 2 * time.Minute

// program is what an environment variable names.
func program(t *testing.T, variable string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		t.Fatalf("%s names no program", variable)
	}
	return path
}

// server is a process that is killed at the end of its test.
type server struct {
	t       *testing.T
	url     string
	process *exec.Cmd
}

// start a server with a configuration file, and wait until it answers.
func start(t *testing.T, command []string, config string) *server {
	t.Helper()
	free, err := ports.Free(1)
	if err != nil {
		t.Fatal(err)
	}
	port := free[0]
	file := filepath.Join(t.TempDir(), "server.conf")
	if err := os.WriteFile(file, fmt.Appendf(nil, "host: 127.0.0.1\nport: %d\n%s", port, config), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, url: fmt.Sprintf("nats://127.0.0.1:%d", port)}
	s.process = exec.Command(command[0], append(command[1:], "-c", file)...)
	var told bytes.Buffer
	s.process.Stdout, s.process.Stderr = &told, &told
	if err := s.process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	for until := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		conn, err := nats.Connect(s.url, nats.Timeout(time.Second))
		if err == nil {
			conn.Close()
			return s
		}
		if time.Now().After(until) {
			t.Fatalf("%s does not answer: %s", command[0], told.String())
		}
	}
}

// natsmq is what Milvus 2.3 to 2.5 had inside: a nats-server with these settings.
func natsmq(t *testing.T, storeDir string) *server {
	t.Helper()
	config := fmt.Sprintf("max_payload: 8388608\nmax_pending: 67108864\njetstream { store_dir: %q, max_file_store: 17179869184 }\n", storeDir)
	return start(t, []string{program(t, "NUTHATCH_NATS_SERVER")}, config)
}

func nuthatch(t *testing.T) *server {
	t.Helper()
	// A little more than a message of natsmq, since an imported one travels with its place.
	config := fmt.Sprintf("max_payload: 8450048\njetstream { store_dir: %q }\n", filepath.Join(t.TempDir(), "store"))
	return start(t, []string{program(t, "NUTHATCH_BINARY"), "serve", "--console", "off"}, config)
}

func (s *server) stop() {
	if s.process == nil {
		return
	}
	_ = s.process.Process.Signal(syscall.SIGTERM)
	_ = s.process.Wait()
	s.process = nil
}

func (s *server) connect() *nats.Conn {
	s.t.Helper()
	conn, err := nats.Connect(s.url, nats.Timeout(patience), nats.MaxReconnects(-1))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(conn.Close)
	return conn
}

// importing runs `nuthatch stream import` at the new server, to its end.
func (s *server) importing(arguments ...string) (string, error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	words := append([]string{"-s", s.url, "stream", "import"}, arguments...)
	output, err := exec.CommandContext(ctx, program(s.t, "NUTHATCH_BINARY"), words...).CombinedOutput()
	return string(output), err
}

// following is an import that keeps up.
type following struct {
	process *exec.Cmd
	told    *lockedBuffer
}

func (s *server) follow(arguments ...string) *following {
	s.t.Helper()
	words := append([]string{"-s", s.url, "stream", "import"}, arguments...)
	f := &following{process: exec.Command(program(s.t, "NUTHATCH_BINARY"), words...), told: &lockedBuffer{}}
	f.process.Stdout, f.process.Stderr = f.told, f.told
	if err := f.process.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = f.end(os.Kill) })
	return f
}

// end sends a signal, and waits.
func (f *following) end(signal os.Signal) error {
	if f.process.ProcessState != nil {
		return nil
	}
	if err := f.process.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return f.process.Wait()
}

// has waits until it has told something.
func (f *following) has(t *testing.T, text string) {
	t.Helper()
	for until := time.Now().Add(patience); !strings.Contains(f.told.String(), text); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("the import does not say %q: %s", text, f.told.String())
		}
	}
}
