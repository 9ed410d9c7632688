// Package process stands in a copy of kine for nats-server's packages server and test: where its tests ask these for a
// server, they get the one that NUTHATCH_BINARY names, in a process of its own.
package process

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

var listening = regexp.MustCompile(`client connections on (127\.0\.0\.1:\d+)`)

// Options are those of nats-server that kine's tests set.
type Options struct {
	Port      int
	JetStream bool
	StoreDir  string
}

// Server is a server that runs.
type Server struct {
	process  *exec.Cmd
	url, dir string
}

// RunServer starts a server and waits until it is ready. It panics where none starts, as nats-server's does.
func RunServer(options *Options) *Server {
	args := []string{"serve", "-a", "127.0.0.1", "-p", strconv.Itoa(options.Port), "--console", "off"}
	if options.JetStream {
		args = append(args, "-js", "-sd", filepath.Join(options.StoreDir, "jetstream"))
	}
	process := exec.Command(os.Getenv("NUTHATCH_BINARY"), args...)
	read, write, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	process.Stdout, process.Stderr = write, write
	if err := process.Start(); err != nil {
		panic(err)
	}
	write.Close()
	s := &Server{process: process, dir: options.StoreDir}
	if s.url, err = waitReady(read); err != nil {
		s.Shutdown()
		panic(err)
	}
	return s
}

// waitReady gives the URL; the log is read to its end, so that the server never waits for a reader.
func waitReady(log io.ReadCloser) (string, error) {
	var url string
	var told strings.Builder
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		fmt.Fprintln(&told, lines.Text())
		if found := listening.FindStringSubmatch(lines.Text()); found != nil {
			url = "nats://" + found[1]
		}
		if url != "" && strings.Contains(lines.Text(), "Server is ready") {
			go func() {
				_, _ = io.Copy(io.Discard, log)
				log.Close()
			}()
			return url, nil
		}
	}
	return "", fmt.Errorf("no server is ready:\n%s", told.String())
}

// ClientURL is where clients connect to.
func (s *Server) ClientURL() string { return s.url }

// StoreDir is what the test has given.
func (s *Server) StoreDir() string { return s.dir }

// Shutdown ends it at once, and waits for its end.
func (s *Server) Shutdown() {
	if s.process.ProcessState == nil {
		_ = s.process.Process.Kill()
		_ = s.process.Wait()
	}
}
