// Neutron-revision creates a network, and shows its revision_number after each of some requests. It speaks to the Neutron of
// NEUTRON_URL.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
)

// reply has what the replies to these requests have in common with what we look at.
type reply struct {
	Network struct {
		ID       string `json:"id"`
		Revision int    `json:"revision_number"`
	} `json:"network"`
}

func main() {
	created := send("POST", "/networks", `{"network": {"name": "a"}}`)
	path := "/networks/" + created.Network.ID
	show := func(what string) {
		fmt.Printf("%-18s revision_number %d\n", what, send("GET", path, "").Network.Revision)
	}
	show("created")
	send("PUT", path+"/tags/kubernetes", "")
	show("a tag")
	send("PUT", path+"/tags/kubernetes", "")
	show("the same tag again")
	send("POST", "/subnets", fmt.Sprintf(`{"subnet": {"network_id": %q, "ip_version": 4, "cidr": "10.0.0.0/24"}}`, created.Network.ID))
	show("a subnet in it")
}

func send(method, path, body string) (answer reply) {
	request, err := http.NewRequest(method, os.Getenv("NEUTRON_URL")+"/v2.0"+path, bytes.NewBufferString(body))
	if err != nil {
		log.Fatal(err)
	}
	request.Header = http.Header{"X-User-Id": {"user"}, "X-Project-Id": {"project"}, "X-Roles": {"admin"}, "Content-Type": {"application/json"}}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode >= 300 {
		log.Fatalf("%s %s: %s %s %v", method, path, response.Status, text, err)
	}
	if len(text) > 0 && string(text) != "null" {
		if err := json.Unmarshal(text, &answer); err != nil {
			log.Fatal(err)
		}
	}
	return answer
}
