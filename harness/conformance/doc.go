// Package conformance tests that the embedded control plane behaves as any Kubernetes cluster does, so that what a
// lesson shows is true everywhere. It contains only tests.
//
//   - The tests share one cluster ([example.com/controllers/harness/cluster.Shared]) with other packages' tests. Each
//     test uses a namespace of its own, and adds machines of its own if it needs to break some.
//   - They wait for a state, never for a time.
package conformance
