// Wire sends one request to the API server and prints the response as it was sent, without the decoding and the retries
// of client-go and the decompression of net/http.
//
//	go run ./wire [-method GET] [-header 'Key: value']... [-body TEXT] [-show HEADER]... [-times] PATH
//
// It prints the status, the headers that -show names, and the lines of the body. With -times, each line begins with the
// whole seconds since the request was sent, and a last line "end" says when the body ended.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"example.com/controllers/guesses/internal/client"
)

func main() {
	log.SetFlags(0)
	method := flag.String("method", http.MethodGet, "HTTP method")
	body := flag.String("body", "", "body of the request")
	times := flag.Bool("times", false, "print the seconds since the request was sent")
	header := http.Header{}
	flag.Func("header", "header of the request, as 'Key: value'; may be repeated", func(line string) error {
		key, value, ok := strings.Cut(line, ": ")
		if !ok {
			return errors.New("want 'Key: value'")
		}
		header.Add(key, value)
		return nil
	})
	var show []string
	flag.Func("show", "header of the response to print; may be repeated", func(name string) error {
		show = append(show, name)
		return nil
	})
	flag.Parse()
	if flag.NArg() != 1 {
		log.Fatal("want one argument: the path")
	}
	if err := send(*method, flag.Arg(0), *body, header, show, *times); err != nil {
		log.Fatal(err)
	}
}

func send(method, path, body string, header http.Header, show []string, times bool) error {
	config := client.Config()
	config.DisableCompression = true // else net/http unpacks the body and hides the header
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	request, err := http.NewRequest(method, strings.TrimSuffix(config.Host, "/")+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header = header

	start := time.Now()
	printLine := func(line string) {
		if times {
			line = fmt.Sprintf("%ds %s", int(time.Since(start).Seconds()), line)
		}
		fmt.Println(line)
	}
	response, err := httpClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	printLine(response.Status)
	for _, name := range show {
		printLine(name + ": " + response.Header.Get(name))
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 16<<20) // a list is one line
	for lines.Scan() {
		printLine(lines.Text())
	}
	if times {
		printLine("end")
	}
	return lines.Err()
}
