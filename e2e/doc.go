// Package e2e tests the lessons' controllers as they would run in production: as images, from their manifests, with the
// permissions of their ServiceAccounts, on a kind cluster of one control plane and three workers. "make e2e" creates the
// cluster and runs the tests.
package e2e
