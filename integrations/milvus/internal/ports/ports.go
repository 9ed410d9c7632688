// Package ports finds ports of the loopback interface for servers that tests and the comparison start: what the crate
// nuthatch-ports does, and why it does so, with the same locks.
package ports

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

const (
	first = 12_000
	last  = 32_768
	least = 2_048
	block = 32
)

// What this process gives ports of; the locks of its blocks are held for as long as it lives.
var given struct {
	sync.Mutex
	next, end int
	locks     []*os.File
}

// Free gives as many ports, on each of which nobody listens and which nobody else is given who asks here.
func Free(count int) ([]int, error) {
	given.Lock()
	defer given.Unlock()
	var found []int
	for len(found) < count {
		if given.next == given.end {
			if err := takeBlock(); err != nil {
				return nil, err
			}
		}
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", given.next))
		if err == nil {
			found = append(found, given.next)
			if err := listener.Close(); err != nil {
				return nil, err
			}
		}
		given.next++
	}
	return found, nil
}

// The end of the ports that are given on this machine.
func end() int {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if fields := strings.Fields(string(text)); err == nil && len(fields) > 0 {
		if system, err := strconv.Atoi(fields[0]); err == nil && system >= first+least {
			return min(last, system)
		}
	}
	return last
}

func takeBlock() error {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("nuthatch-ports-%d", os.Geteuid()))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	count := (end() - first) / block
	for step := range count {
		number := (step + os.Getpid()) % count
		file, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(number)), os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		if syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
			_ = file.Close()
			continue
		}
		given.locks = append(given.locks, file)
		given.next = first + number*block
		given.end = given.next + block
		return nil
	}
	return fmt.Errorf("no block of ports from %d on is free: see %s", first, dir)
}
