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
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/history"
	"example.com/controllers/harness/metrics"
	"example.com/controllers/harness/view/page"
)

// proxyFlags are the flags of "workshop proxy".
type proxyFlags struct {
	out, kubeconfig, record, listen, metrics string
	faults                                   []string
}

func proxyCommand() *cobra.Command {
	var f proxyFlags
	cmd := &cobra.Command{
		Use:   "proxy --out FILE",
		Short: "Record a controller's requests to its API server, and inject faults",
		Long: `Run a proxy in front of an API server, and write a kubeconfig that goes through it.
The proxy records the requests of every controller that uses that kubeconfig, and
injects the faults. It runs until Ctrl-C. "workshop view" draws the recording.

If you start the proxy again with the same --out, and its port is still free, clients of
the earlier proxy keep working with their kubeconfig. The keys for that are in FILE.key.
While the proxy runs, anybody who can read one of the two files can act as the user of the
original kubeconfig.

` + apiproxy.FaultUsage + `

  --fault verb=delete,resource=pods,nth=2,refuse=500
  --fault verb=watch,resource=pods,nth=1,watch=cut,event=5
  --fault verb=update,subresource=status,nth=1-3,refuse=429,retry-after=1s`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runProxy(cmd.Context(), f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.out, "out", "", "file to write the kubeconfig of the proxy to (required)")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig of the API server, used with its current context (default: the one that kubectl would use)")
	flags.StringVar(&f.record, "record", "", "file to write the recording to, as JSON Lines; an existing file is overwritten (default: no recording)")
	flags.StringVar(&f.metrics, "metrics", "", "URL of the controller's metrics: those of client-go's queues are recorded, too")
	flags.StringArrayVar(&f.faults, "fault", nil, "fault to inject, as described above; may be repeated")
	flags.StringVar(&f.listen, "listen", "", "address to listen on, host:port (default: the one in an earlier --out, if it is free, or any free port of 127.0.0.1)")
	return cmd
}

func runProxy(ctx context.Context, f proxyFlags) (err error) {
	if f.out == "" {
		return errors.New("give --out FILE, the file to write the kubeconfig to")
	}
	if f.metrics != "" {
		if f.record == "" {
			return errors.New("--metrics needs --record, the file to write them to")
		}
		if err := metrics.Check(f.metrics); err != nil {
			return fmt.Errorf("--metrics: %w", err)
		}
	}
	options := apiproxy.Options{Listen: f.listen}
	if f.listen == "" {
		options.Listen = addressOf(f.out) // clients of an earlier proxy find this one there
	}
	if options.Faults, err = parseFaults(f.faults); err != nil {
		return err
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
	var recordings []string
	if f.record != "" {
		recordings = append(recordings, f.record)
	}
	if dir := os.Getenv(apiproxy.RecordingsVariable); dir != "" {
		recordings = append(recordings, filepath.Join(dir, fmt.Sprintf("proxy-%d%s", os.Getpid(), page.Suffix)))
	}
	failed := make(chan struct{}, 1)
	var recorders []*apiproxy.FileRecorder
	for _, path := range recordings {
		recorder, makeErr := apiproxy.NewFileRecorder(path)
		if makeErr != nil {
			return makeErr
		}
		defer func() { err = errors.Join(err, recorder.Close()) }()
		recorders = append(recorders, recorder)
	}
	options.Record = func(r history.Record) {
		for _, recorder := range recorders {
			recorder.Record(r)
			select {
			case <-recorder.Failed():
				select {
				case failed <- struct{}{}:
				default: // once is enough
				}
			default:
			}
		}
		printInjections(r)
	}
	if f.metrics != "" {
		asked, stop := context.WithCancel(ctx)
		var asking sync.WaitGroup
		asking.Go(func() { metrics.Record(asked, f.metrics, options.Record, reportMetrics) })
		defer asking.Wait() // before the recording is closed
		defer stop()
	}
	// The proxy does not end with ctx but is stopped, so that its last requests are recorded.
	proxy, err := apiproxy.Start(context.WithoutCancel(ctx), options)
	if (errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.EADDRNOTAVAIL)) && f.listen == "" {
		options.Listen = ""
		proxy, err = apiproxy.Start(context.WithoutCancel(ctx), options)
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("the address %s is in use; give another with --listen, or leave --listen out to use any free port", f.listen)
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
		return exitStatus(0) // Ctrl-C is the way to end a proxy
	case <-proxy.Done():
		return proxy.Wait()
	case <-failed:
		return nil // closing the recorder returns the error
	}
}

// reportMetrics says that the controller's metrics cannot be read, or, if err is nil, that they can be again.
func reportMetrics(err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "proxy: the metrics are not recorded while this lasts: %v\n", err)
		return
	}
	fmt.Fprintln(os.Stderr, "proxy: the metrics are recorded again")
}

// parseFaults parses the values of --fault.
func parseFaults(texts []string) (faults []apiproxy.Fault, err error) {
	for _, text := range texts {
		fault, err := apiproxy.ParseFault(text)
		if err != nil {
			return nil, err
		}
		if fault.Watch == apiproxy.WatchHeld {
			return nil, fmt.Errorf("fault %q: only a Go program can release the events that watch=held holds back; use late=DURATION", text)
		}
		faults = append(faults, fault)
	}
	return faults, nil
}

// printInjections prints the faults that were injected into a request. A watch is recorded twice; it prints the first record.
func printInjections(record history.Record) {
	r := record.Request
	if r == nil || !r.IsDisturbed() || r.Verb == "watch" && r.Status == http.StatusOK && !r.Open {
		return
	}
	fmt.Fprintf(os.Stderr, "proxy: %s: %s\n", strings.TrimSpace(r.Verb+" "+r.What()+" "+r.Object()), r.Injections())
}

// proxyName is the name of the cluster and the user in a kubeconfig that the proxy writes.
const proxyName = "workshop-proxy"

// checkOut returns an error if writing the kubeconfig would overwrite a file that no proxy has written.
func checkOut(f proxyFlags) error {
	old, err := os.ReadFile(f.out)
	if errors.Is(err, os.ErrNotExist) || err == nil && len(old) == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the existing --out: %w", err)
	}
	config, err := clientcmd.Load(old)
	if err != nil || config.Clusters[proxyName] == nil {
		return fmt.Errorf("%s exists and was not written by a proxy, so it is not overwritten; give another --out", f.out)
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
			return fmt.Errorf("%s is the kubeconfig of the proxy itself; give the API server's with --kubeconfig", path)
		}
	}
	return nil
}

// addressOf returns the address, host:port, in a kubeconfig that a proxy has written, or "" for any other file.
func addressOf(path string) string {
	config, err := clientcmd.LoadFromFile(path)
	if err != nil || config.Clusters[proxyName] == nil {
		return ""
	}
	return strings.TrimPrefix(config.Clusters[proxyName].Server, "https://")
}

// loadCurrent returns the current context, with its cluster and user, of a kubeconfig; if path is "", of those that
// kubectl would read.
func loadCurrent(path string) (*clientcmdapi.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = path
	from := cmp.Or(path, strings.Join(rules.Precedence, ", "))
	config, err := rules.Load()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", from, err)
	}
	if clientcmdapi.IsConfigEmpty(config) {
		return nil, fmt.Errorf("no kubeconfig at %s; give one with --kubeconfig, or set KUBECONFIG", from)
	}
	if config.Contexts[config.CurrentContext] == nil {
		return nil, fmt.Errorf("kubeconfig %s has no current context (current-context is %q); choose one with: kubectl config use-context NAME",
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
			return nil, fmt.Errorf("%s exists and was not written by a proxy, so it is not overwritten; give another --out", path)
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

// writeProxyKubeconfig writes a kubeconfig like the original, whose server and credentials are the proxy's.
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

// writePrivate replaces a file atomically, with mode 0600.
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
		Short: "Print what the requests of a recording cost",
		Long: `Print what the requests in a recording of "workshop proxy" cost, by verb and resource: how
many there were, how many of them changed nothing (no-op) or failed, how many events
watches delivered, and the kilobytes (1000 bytes) sent and received. The proxy may still
be running.`,
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
	flags.BoolVar(&f.PerMinute, "per-minute", false, "print averages per minute")
	flags.BoolVar(&f.ByAgent, "by-agent", false, "print a line for each program, by the name in its User-Agent")
	flags.BoolVar(&f.ByWho, "by-who", false, "print a line for each user")
	return cmd
}
