package main

import (
	"os"
	"os/exec"
	"syscall"
	"unsafe"
)

// Set in the environment of the process that has the network of its own.
const aloneMark = "NUTHATCH_BENCH_ALONE"

// alone says whether this process has a network of its own, with nothing but a loopback.
func alone() bool {
	return os.Getenv(aloneMark) != ""
}

// runAlone runs this program again, with the same arguments, in a network namespace of its own, and
// gives its exit status: Woodpecker's server listens on all addresses and cannot be told otherwise.
func runAlone() (int, error) {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), aloneMark+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if uid, gid := os.Geteuid(), os.Getegid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}}
	}
	err := cmd.Run()
	if cmd.ProcessState == nil {
		return 1, err
	}
	return max(cmd.ProcessState.ExitCode(), 0), nil
}

// raiseLoopback brings the loopback of a new network namespace up.
func raiseLoopback() error {
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(socket)
	// struct ifreq: the name, then a union of 24 bytes, of which the flags are the first two.
	var request struct {
		name  [syscall.IFNAMSIZ]byte
		flags uint16
		_     [22]byte
	}
	copy(request.name[:], "lo")
	request.flags = syscall.IFF_UP
	_, _, code := syscall.Syscall(syscall.SYS_IOCTL, uintptr(socket), syscall.SIOCSIFFLAGS, uintptr(unsafe.Pointer(&request)))
	if code != 0 {
		return code
	}
	return nil
}
