package apiproxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUpgrade(t *testing.T) {
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, "Bearer upstream-secret", r.Header.Get("Authorization"))
		require.Equal(t, "sh", r.URL.Query().Get("command"))
		conn, buffer, err := http.NewResponseController(w).Hijack()
		require.NoError(t, err)
		defer conn.Close()
		fmt.Fprint(buffer, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
		buffer.Flush()
		line, _ := buffer.ReadString('\n')
		fmt.Fprint(buffer, "you said "+line)
		buffer.Flush()
	})
	request, err := http.NewRequest("POST", w.URL()+"/api/v1/namespaces/shop/pods/a/exec?command=sh", nil)
	require.NoError(t, err)
	request.Header.Set("Connection", "Upgrade")
	request.Header.Set("Upgrade", "SPDY/3.1")
	response, err := client(t, w.Config(), "http/1.1").Do(request)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, response.StatusCode)
	conn := response.Body.(io.ReadWriteCloser)
	_, err = io.WriteString(conn, "s3cret\n")
	require.NoError(t, err)
	line, err := bufio.NewReader(conn).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "you said s3cret\n", line)
	require.NoError(t, conn.Close())
	eventually(t, "recorded", func() bool { return len(w.memory.History().Requests) == 1 })
	r := w.only()
	require.Equal(t, "create pods/exec shop/a", r.Verb+" "+r.What()+" "+r.Object())
	require.Equal(t, http.StatusSwitchingProtocols, r.Status)
	require.Empty(t, r.Error)
	require.False(t, r.IsWrite())
}

func TestUpgradeThatIsRefused(t *testing.T) {
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) { http.Error(w, "no", http.StatusForbidden) })
	response, body := do(t, client(t, w.Config(), "http/1.1"), w.URL(), "POST", "/api/v1/namespaces/shop/pods/a/exec", "",
		"Connection", "Upgrade", "Upgrade", "SPDY/3.1")
	require.Equal(t, http.StatusForbidden, response.StatusCode)
	require.Equal(t, "no\n", body)
}

// The API server serves watches over WebSocket, too, and some clients ask for that first. Through the proxy, they get an
// ordinary watch, so that it can be recorded and disturbed.
func TestAWatchIsNotUpgraded(t *testing.T) {
	const event = `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"shop","resourceVersion":"7"}}}`
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		require.Empty(t, r.Header.Get("Upgrade"))
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintln(w, event)
	})
	response, body := do(t, client(t, w.Config(), "http/1.1"), w.URL(), "GET", "/api/v1/namespaces/shop/pods?watch=true", "",
		"Connection", "Upgrade", "Upgrade", "websocket", "Sec-Websocket-Version", "13", "Sec-Websocket-Key", "AAAAAAAAAAAAAAAAAAAAAA==")
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.Equal(t, event+"\n", body)
	require.Len(t, w.memory.History().Events, 1)
}
