package agent

import (
	"bufio"
	"context"
	"encoding/binary"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"

	"example.com/controllers/reboot/internal/nodetest"
)

func TestCommand(t *testing.T) {
	tests := map[string]struct {
		command Command
		want    string // the error; "" for none
	}{
		"success":               {Command{Line: "true"}, ""},
		"success, with output":  {Command{Line: "echo rebooting"}, ""},
		"failure":               {Command{Line: "exit 3;"}, `run "exit 3;": exit status 3`},
		"failure, with output":  {Command{Line: "echo one; echo two >&2; exit 3"}, "run \"echo one; echo two >&2; exit 3\": exit status 3\none\ntwo"},
		"killed":                {Command{Line: "kill -9 $$"}, `run "kill -9 $$": signal: killed`},
		"not found":             {Command{Line: "no-such-command"}, `run "no-such-command": exec: "no-such-command": executable file not found in $PATH`},
		"no command":            {Command{}, `run "": the command is empty`},
		"a child that runs on":  {Command{Line: "sleep 60 & exit 0"}, ""}, // it keeps the output open
		"and the command fails": {Command{Line: "sleep 60 & exit 3"}, `run "sleep 60 & exit 3": exit status 3`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := test.command.Reboot(t.Context())
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, test.want)
		})
	}
}

func TestCommandReturnsTheEndOfTheOutput(t *testing.T) {
	// 500 bytes before the end is the middle of an ü.
	err := Command{Line: `printf 'begin%400s' ''; printf 'ü%.0s' $(seq 250); printf 'e'; exit 1`}.Reboot(t.Context())
	require.ErrorContains(t, err, "exit status 1\n"+strings.Repeat("ü", 249)+"e")
	require.NotContains(t, strings.SplitN(err.Error(), "\n", 2)[1], "begin")
}

func TestCommandThatHangs(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	started := filepath.Join(t.TempDir(), "started")
	go func() {
		for ctx.Err() == nil {
			if _, err := os.Stat(started); err == nil {
				cancel()
			}
			time.Sleep(time.Millisecond)
		}
	}()
	err := Command{Line: "touch " + started + "; exec sleep 600"}.Reboot(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

// The agent in the manifests reaches the system's D-Bus: the address is where the host's directory is mounted.
func TestTheManifestMountsTheBus(t *testing.T) {
	text, err := os.ReadFile("../manifests/agent.yaml")
	require.NoError(t, err)
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(text, nil, nil)
	require.NoError(t, err)
	pod := object.(*appsv1.DaemonSet).Spec.Template.Spec
	host, mounted, address := map[string]string{}, map[string]string{}, ""
	for _, volume := range pod.Volumes {
		host[volume.Name] = volume.HostPath.Path
	}
	for _, mount := range pod.Containers[0].VolumeMounts {
		mounted[mount.MountPath] = host[mount.Name]
	}
	for _, variable := range pod.Containers[0].Env {
		if variable.Name == "DBUS_SYSTEM_BUS_ADDRESS" {
			address = variable.Value
		}
	}
	path, ok := strings.CutPrefix(address, "unix:path=")
	require.True(t, ok, "package dbus looks in /var/run by default, which is not the host's: %q", address)
	require.Equal(t, "/run/dbus", mounted[filepath.Dir(path)])
}

// fakeLogind is a D-Bus on which answer takes the place of systemd-logind; nil for no answer.
func fakeLogind(t *testing.T, answer func(call *dbus.Message) *dbus.Message) {
	dir, err := os.MkdirTemp("", "bus") // a socket's path must be short
	require.NoError(t, err)
	listener, err := net.Listen("unix", filepath.Join(dir, "s"))
	require.NoError(t, err)
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path="+filepath.Join(dir, "s"))
	served := make(chan struct{})
	go func() {
		defer close(served)
		conn, err := listener.Accept()
		if err != nil {
			return // nobody connected
		}
		defer conn.Close()
		in := bufio.NewReader(conn)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			reply := ""
			switch command := strings.Trim(line, "\x00\r\n"); {
			case command == "AUTH":
				reply = "REJECTED EXTERNAL\r\n"
			case strings.HasPrefix(command, "AUTH EXTERNAL"):
				reply = "OK 0123456789abcdef0123456789abcdef\r\n"
			case command == "NEGOTIATE_UNIX_FD":
				reply = "ERROR\r\n"
			}
			if _, err := conn.Write([]byte(reply)); err != nil {
				return
			}
			if strings.HasPrefix(line, "BEGIN") {
				break
			}
		}
		for serial := uint32(1); ; serial++ {
			call, err := dbus.DecodeMessage(in)
			if err != nil {
				return
			}
			reply := &dbus.Message{Type: dbus.TypeMethodReply, Headers: map[dbus.HeaderField]dbus.Variant{}}
			if call.Headers[dbus.FieldMember].Value() == "Hello" {
				reply.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(""))
				reply.Body = []any{":1.1"}
			} else if reply = answer(call); reply == nil {
				continue
			}
			reply.Headers[dbus.FieldReplySerial] = dbus.MakeVariant(call.Serial())
			assert.NoError(t, encode(conn, reply, serial))
		}
	}()
	t.Cleanup(func() {
		assert.NoError(t, listener.Close())
		<-served
		assert.NoError(t, os.RemoveAll(dir))
	})
}

// encode writes a message as a bus does; package dbus sets the serial only on messages of its own connections.
func encode(conn net.Conn, message *dbus.Message, serial uint32) error {
	var buffer strings.Builder
	if err := message.EncodeTo(&buffer, binary.LittleEndian); err != nil {
		return err
	}
	data := []byte(buffer.String())
	binary.LittleEndian.PutUint32(data[8:], serial)
	_, err := conn.Write(data)
	return err
}

func TestLogind(t *testing.T) {
	calls := make(chan *dbus.Message, 2)
	fakeLogind(t, func(call *dbus.Message) *dbus.Message {
		calls <- call
		return &dbus.Message{Type: dbus.TypeMethodReply, Headers: map[dbus.HeaderField]dbus.Variant{}}
	})
	require.NoError(t, Logind{}.Reboot(t.Context()))
	require.Len(t, calls, 1)
	call := <-calls
	require.Equal(t, []any{false}, call.Body, "nobody is there to be asked for a password")
	for field, want := range map[dbus.HeaderField]any{
		dbus.FieldDestination: "org.freedesktop.login1", dbus.FieldPath: dbus.ObjectPath("/org/freedesktop/login1"),
		dbus.FieldInterface: "org.freedesktop.login1.Manager", dbus.FieldMember: "Reboot",
	} {
		require.Equal(t, want, call.Headers[field].Value())
	}
}

func TestLogindRefuses(t *testing.T) {
	fakeLogind(t, func(*dbus.Message) *dbus.Message {
		return &dbus.Message{
			Type: dbus.TypeError,
			Headers: map[dbus.HeaderField]dbus.Variant{
				dbus.FieldErrorName: dbus.MakeVariant("org.freedesktop.DBus.Error.AccessDenied"),
				dbus.FieldSignature: dbus.MakeVariant(dbus.SignatureOf("")),
			},
			Body: []any{"Permission denied"},
		}
	})
	err := Logind{}.Reboot(t.Context())
	require.EqualError(t, err, "ask systemd-logind to reboot: Permission denied")
	require.ErrorAs(t, err, &dbus.Error{})
}

func TestLogindDoesNotAnswer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	fakeLogind(t, func(*dbus.Message) *dbus.Message { cancel(); return nil })
	require.ErrorContains(t, Logind{}.Reboot(ctx), "ask systemd-logind to reboot: ")
}

func TestLogindWithoutABus(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none")
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path="+path)
	err := Logind{}.Reboot(t.Context())
	require.ErrorContains(t, err, "connect to the system's D-Bus (is /run/dbus mounted?): ")
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestDryRun(t *testing.T) { require.NoError(t, DryRun{}.Reboot(t.Context())) }

func TestKernelBootID(t *testing.T) {
	file := filepath.Join(t.TempDir(), "boot_id")
	_, err := KernelBootID(file).Read(t.Context())
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "read the boot ID: ")

	require.NoError(t, os.WriteFile(file, []byte(" \n"), 0o600))
	_, err = KernelBootID(file).Read(t.Context())
	require.EqualError(t, err, "read the boot ID: "+file+" is empty")

	require.NoError(t, os.WriteFile(file, []byte("0bfa-1\n"), 0o600))
	id, err := KernelBootID(file).Read(t.Context())
	require.NoError(t, err)
	require.Equal(t, "0bfa-1", id)
}

func TestInitBootID(t *testing.T) {
	const after = " S 0 1 1 0 -1 4194560 14018 4057733 94 2166 29 58 10231 3262 20 0 1 0 %START% 172482560 3295 18446744073709551615\n"
	tests := map[string]struct{ stat, want, err string }{
		"a name":                     {"1 (systemd)" + after, "4711", ""},
		"a name with a space":        {"1 (my init)" + after, "4711", ""},
		"a name with parentheses":    {"1 (a) S (b)" + after, "4711", ""},
		"a closing parenthesis":      {"1 ())" + after, "4711", ""},
		"a name that looks like all": {"1 (x" + strings.ReplaceAll(after, "\n", "") + ")" + after, "4711", ""},
		"an empty name":              {"1 ()" + after, "4711", ""},
		"the last field":             {"1 (x) " + strings.Repeat("0 ", 19) + "4711", "4711", ""},
		"a field too few":            {"1 (x) " + strings.Repeat("0 ", 19), "", "has an unknown format"},
		"no name":                    {"1 systemd" + after, "", "has an unknown format"},
		"empty":                      {"", "", "has an unknown format"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			start, err := startTime([]byte(strings.ReplaceAll(test.stat, "%START%", "4711")))
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, start)
		})
	}
}

func TestInitBootIDOfThisMachine(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has /proc")
	}
	kernel, err := KernelBootID("/proc/sys/kernel/random/boot_id").Read(t.Context())
	require.NoError(t, err)
	first, err := InitBootID("/proc/self").Read(t.Context())
	require.NoError(t, err)
	require.Regexp(t, "^"+kernel+"-[0-9]+$", first)
	second, err := InitBootID("/proc/self").Read(t.Context())
	require.NoError(t, err)
	require.Equal(t, first, second)
	_, err = InitBootID("/proc/none").Read(t.Context())
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "read the start time of the first process: ")
}

func TestNodeBootID(t *testing.T) {
	node := nodetest.New("n1", func(node *corev1.Node) { node.Status.NodeInfo.BootID = "boot-1" })
	client := fake.NewClientset(node, nodetest.New("n2"))
	id, err := NodeBootID{client, "n1"}.Read(t.Context())
	require.NoError(t, err)
	require.Equal(t, "boot-1", id)

	_, err = NodeBootID{client, "n2"}.Read(t.Context())
	require.EqualError(t, err, "read the boot ID: the kubelet has not reported one in the Node's status")

	_, err = NodeBootID{client, "n3"}.Read(t.Context())
	require.True(t, apierrors.IsNotFound(err))
	require.ErrorContains(t, err, "read the boot ID: ")
}
