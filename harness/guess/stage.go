package guess

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/gobuild"
	"example.com/controllers/harness/play"
)

// NamespaceVariable is the name of an environment variable with the namespace of a question. The commands of its page have it.
const NamespaceVariable = "NAMESPACE"

// Stage is where questions are played: a cluster, on which each has a namespace of its own.
type Stage struct {
	Cluster *cluster.Cluster
	// Scratch is a directory for files; the caller makes and removes it.
	Scratch string
	// Workshop is the path of the workshop's command, which is then on the PATH of the pages' commands; "" if they need none.
	Workshop string
}

// Played is a question that has been played. Its namespace is there until Close.
type Played struct {
	// Env is the environment of its commands, without what [play.Player] adds.
	Env       []string
	Namespace string
	Result    play.Result

	client kubernetes.Interface
}

// Play plays a question's page. Where there is an error, Played is nil, and the namespace has been deleted.
func (s *Stage) Play(ctx context.Context, q Question, player play.Player) (_ *Played, err error) {
	client, err := s.Cluster.Client()
	if err != nil {
		return nil, err
	}
	namespace, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "guess-"},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create a namespace for the question: %w", err)
	}
	p := &Played{Namespace: namespace.Name, client: client}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close(ctx))
		}
	}()
	if err := s.awaitAccount(ctx, client, p.Namespace); err != nil {
		return nil, err
	}
	if p.Env, err = s.env(ctx, p.Namespace); err != nil {
		return nil, err
	}
	player.Scratch = filepath.Join(s.Scratch, p.Namespace)
	if err := os.MkdirAll(player.Scratch, 0o700); err != nil {
		return nil, err
	}
	player.Env = slices.Concat(p.Env, player.Env)
	if p.Result, err = player.Play(ctx, q.Page); err != nil {
		return nil, err
	}
	return p, nil
}

// awaitAccount waits for the ServiceAccount without which no Pod can be created.
func (s *Stage) awaitAccount(ctx context.Context, client kubernetes.Interface, namespace string) error {
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return fmt.Errorf("wait for the ServiceAccount default of namespace %s: %w", namespace, err)
	}
	return nil
}

// env returns the environment of commands that work in a namespace.
func (s *Stage) env(ctx context.Context, namespace string) ([]string, error) {
	config, err := s.Cluster.Config()
	if err != nil {
		return nil, err
	}
	here := *s.Cluster
	here.Kubeconfig = filepath.Join(s.Scratch, namespace+".kubeconfig")
	if err := cluster.WriteKubeconfig(here.Kubeconfig, config, namespace); err != nil {
		return nil, err
	}
	builds, err := gobuild.Env(ctx)
	if err != nil {
		return nil, err
	}
	env := slices.Concat(builds, here.Env(s.Scratch), []string{NamespaceVariable + "=" + namespace})
	if s.Workshop != "" {
		path := []string{here.Kubectl, filepath.Dir(s.Workshop), os.Getenv("PATH")}
		env = append(env, "PATH="+strings.Join(path, string(os.PathListSeparator)))
	}
	return env, nil
}

// Close deletes the namespace, and does not wait until it is gone.
func (p *Played) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err := p.client.CoreV1().Namespaces().Delete(ctx, p.Namespace, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete namespace %s: %w", p.Namespace, err)
	}
	return nil
}
