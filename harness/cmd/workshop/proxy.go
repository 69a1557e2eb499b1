package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/history"
)

// proxyFlags are the flags of "workshop proxy".
type proxyFlags struct {
	out, kubeconfig, record, listen string
	faults                          []string
}

func proxyCommand() *cobra.Command {
	var f proxyFlags
	cmd := &cobra.Command{
		Use:   "proxy --out FILE",
		Short: "Record what a controller says to its API server, and break it on request",
		Long: `Run a proxy in front of an API server, and write a kubeconfig that goes through it.
A controller that uses that kubeconfig is recorded, and meets the faults. It runs until
Ctrl-C.

The kubeconfig stays good: a proxy started again with the same --out is the same one to
its clients, if its port is still free. What that takes is kept in FILE.key. Who has either of the files
acts as the user of the original kubeconfig while the proxy runs.

A fault says which requests it befalls (verb, group, resource, subresource, namespace,
name, agent: how the User-Agent begins; nth: 2, 1-6 or 3-, of those that match) and what
happens to them:

  refuse=STATUS  answered with an error, and not done; with retry-after=DURATION
  lost=reply     done, and the connection breaks; with refuse=504: done, and answered with that
  lost=late      the connection breaks, and it is done afterwards, when a delay=DURATION is over
  lost=request   not done, and the connection breaks
  delay=2s       sent on later
  down=2s        for that long, nobody can connect
  late=2s        (of a watch) all events come that much later
  watch=cut      (of a watch) it breaks off before the event with the number event=N
  watch=expired  ... or says there that the resourceVersion is too old
  watch=unobserved    ... or leaves that event out, when the object's next one has come
  watch=no-bookmarks  (of a watch) no bookmarks

  --fault verb=delete,resource=pods,nth=2,refuse=500
  --fault verb=watch,resource=pods,nth=1,watch=cut,event=5
  --fault verb=update,subresource=status,nth=1-3,refuse=429,retry-after=1s`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runProxy(cmd.Context(), f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.out, "out", "", "where to write the kubeconfig that goes through the proxy")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig of the API server; its current context counts (default: as kubectl finds it)")
	flags.StringVar(&f.record, "record", "", "file to write the recording to, as JSON Lines; one that is there is overwritten")
	flags.StringArrayVar(&f.faults, "fault", nil, "something that goes wrong on purpose; may be given several times")
	flags.StringVar(&f.listen, "listen", "", "address to listen on, host:port (default: the one that --out has, if it is free, or else any port of 127.0.0.1)")
	return cmd
}

func runProxy(ctx context.Context, f proxyFlags) (err error) {
	if f.out == "" {
		return errors.New("say where to write the kubeconfig: --out FILE")
	}
	options := apiproxy.Options{Listen: f.listen}
	if f.listen == "" {
		options.Listen = addressOf(f.out) // so that the clients of an earlier one go on
	}
	for _, text := range f.faults {
		fault, err := apiproxy.ParseFault(text)
		if err != nil {
			return err
		}
		options.Faults = append(options.Faults, fault)
	}
	if err := checkOut(f); err != nil {
		return err
	}
	original, err := loadCurrent(f.kubeconfig)
	if err != nil {
		return err
	}
	if options.Upstream, err = clientcmd.NewDefaultClientConfig(*original, nil).ClientConfig(); err != nil {
		return fmt.Errorf("read context %q: %w", original.CurrentContext, err)
	}
	if err := askVersion(ctx, options.Upstream); err != nil {
		return fmt.Errorf("the API server of context %q, %s, does not answer: %w", original.CurrentContext, options.Upstream.Host, err)
	}
	if options.Keys, err = readOrMakeKeys(f.out + ".key"); err != nil {
		return err
	}
	var failed <-chan struct{}
	record := func(history.Record) {}
	if f.record != "" {
		recorder, makeErr := apiproxy.NewFileRecorder(f.record)
		if makeErr != nil {
			return makeErr
		}
		defer func() { err = errors.Join(err, recorder.Close()) }()
		record, failed = recorder.Record, recorder.Failed()
	}
	options.Record = func(r history.Record) {
		record(r)
		sayFault(r)
	}
	// Its context is not ours: it is stopped, so that its last requests are recorded.
	proxy, err := apiproxy.Start(context.WithoutCancel(ctx), options)
	if errors.Is(err, syscall.EADDRINUSE) && f.listen == "" {
		options.Listen = ""
		proxy, err = apiproxy.Start(context.WithoutCancel(ctx), options)
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("the address %s is taken; give another with --listen, or none for any port that is free", f.listen)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, proxy.Stop()) }()
	if err := writeProxyKubeconfig(f.out, original, proxy.Config()); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "proxy: ready: kubeconfig %s -> %s\n", f.out, proxy.URL())
	select {
	case <-ctx.Done():
		return exitStatus(0) // how a proxy ends
	case <-proxy.Done():
		return proxy.Wait()
	case <-failed:
		return nil // closing the recorder says why
	}
}

// sayFault says what was done on purpose. Of the two records of a watch, it is the first that counts.
func sayFault(record history.Record) {
	r := record.Request
	if r == nil || !r.IsDisturbed() || r.Verb == "watch" && r.Status == http.StatusOK && !r.Open {
		return
	}
	fmt.Fprintf(os.Stderr, "proxy: %s: %s\n", strings.TrimSpace(r.Verb+" "+r.What()+" "+r.Object()), r.Injections())
}

// proxyName is what a kubeconfig that we write calls its cluster and its user.
const proxyName = "workshop-proxy"

// checkOut makes sure that nothing is lost when the kubeconfig is written.
func checkOut(f proxyFlags) error {
	old, err := os.ReadFile(f.out)
	if errors.Is(err, os.ErrNotExist) || err == nil && len(old) == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at what --out is now: %w", err)
	}
	config, err := clientcmd.Load(old)
	if err != nil || config.Clusters[proxyName] == nil {
		return fmt.Errorf("there is a file %s that no proxy has written; it stays as it is. Give another --out", f.out)
	}
	paths := []string{f.kubeconfig}
	if f.kubeconfig == "" {
		paths = clientcmd.NewDefaultClientConfigLoadingRules().Precedence
	}
	out, err := os.Stat(f.out)
	if err != nil {
		return err
	}
	for _, path := range paths {
		if in, err := os.Stat(path); err == nil && os.SameFile(in, out) {
			return fmt.Errorf("%s is the kubeconfig that goes through the proxy; give the API server's own with --kubeconfig", path)
		}
	}
	return nil
}

// addressOf returns the address, host:port, in a kubeconfig that a proxy has written, or "".
func addressOf(path string) string {
	config, err := clientcmd.LoadFromFile(path)
	if err != nil || config.Clusters[proxyName] == nil {
		return ""
	}
	return strings.TrimPrefix(config.Clusters[proxyName].Server, "https://")
}

// loadCurrent reads a kubeconfig, or where path is "" those that kubectl would, and returns the current
// context with its credentials.
func loadCurrent(path string) (*clientcmdapi.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = path
	from := cmp.Or(path, strings.Join(rules.Precedence, ", "))
	config, err := rules.Load()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", from, err)
	}
	if clientcmdapi.IsConfigEmpty(config) {
		return nil, fmt.Errorf("there is no kubeconfig at %s; give one with --kubeconfig, or set KUBECONFIG", from)
	}
	if config.Contexts[config.CurrentContext] == nil {
		return nil, fmt.Errorf("the kubeconfig %s has no current context (it says %q); choose one with: kubectl config use-context NAME",
			from, config.CurrentContext)
	}
	if err := clientcmdapi.MinifyConfig(config); err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", from, err)
	}
	return config, nil
}

func askVersion(ctx context.Context, config *rest.Config) error {
	config = rest.CopyConfig(config)
	config.Timeout = 10 * time.Second
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	_, err = discovery.ToServerVersionInterfaceWithContext(client).ServerVersionWithContext(ctx)
	return err
}

func readOrMakeKeys(path string) (*apiproxy.Keys, error) {
	data, err := os.ReadFile(path)
	if err == nil {
		var keys apiproxy.Keys
		if json.Unmarshal(data, &keys) != nil || keys.Token == "" {
			return nil, fmt.Errorf("there is a file %s that no proxy has written; it stays as it is. Give another --out", path)
		}
		if keys.Good() {
			return &keys, nil
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read the proxy's keys: %w", err)
	}
	keys, err := apiproxy.NewKeys()
	if err != nil {
		return nil, err
	}
	if data, err = json.Marshal(keys); err != nil {
		return nil, err
	}
	return keys, writePrivate(path, data)
}

// writeProxyKubeconfig writes a kubeconfig that equals the original, but for the way.
func writeProxyKubeconfig(path string, original *clientcmdapi.Config, config *rest.Config) error {
	data, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{proxyName: {
			Server:                   config.Host,
			TLSServerName:            config.ServerName,
			CertificateAuthorityData: config.CAData,
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{proxyName: {Token: config.BearerToken}},
		Contexts: map[string]*clientcmdapi.Context{original.CurrentContext: {
			Cluster: proxyName, AuthInfo: proxyName,
			Namespace: original.Contexts[original.CurrentContext].Namespace,
		}},
		CurrentContext: original.CurrentContext,
	})
	if err != nil {
		return err
	}
	return writePrivate(path, data)
}

// writePrivate writes a file with mode 0600, all at once: who reads it meanwhile reads the old one.
func writePrivate(path string, data []byte) error {
	file, err := os.CreateTemp(filepath.Dir(path), ".workshop-")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(file.Name()))
	}
	return nil
}

// billFlags are the flags of "workshop bill".
type billFlags struct {
	selection
	history.BillOptions
}

func billCommand() *cobra.Command {
	var f billFlags
	cmd := &cobra.Command{
		Use:   "bill FILE",
		Short: "Say what the requests of a recording cost",
		Long: `Say what the requests of a recording of "workshop proxy" cost: how many of each kind, how
many of them changed nothing or failed, how many events the watches brought, and the
kilobytes (1000 bytes) that travelled, in both directions. The proxy may still be running.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			h, err := f.read(args[0])
			if err != nil {
				return err
			}
			return h.WriteBill(os.Stdout, f.BillOptions)
		},
	}
	f.addFlags(cmd.Flags())
	flags := cmd.Flags()
	flags.BoolVar(&f.PerMinute, "per-minute", false, "show what a minute costs")
	flags.BoolVar(&f.ByAgent, "by-agent", false, "a line for each program")
	flags.BoolVar(&f.ByWho, "by-who", false, "a line for each user")
	return cmd
}
