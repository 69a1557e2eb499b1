// Program openstack has a few of the commands of OpenStack's own client. It finds the cloud as the controller does, by
// environment variables.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/quotas"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"

	"example.com/controllers/crd/neutron"
)

const usage = `usage: openstack network list
       openstack subnet list
       openstack subnet set SUBNET-ID GATEWAY
       openstack port list
       openstack port create NETWORK-ID NAME
       openstack port delete PORT-ID
       openstack quota set PROJECT NETWORKS`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "openstack:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) < 2 {
		return errors.New(usage)
	}
	name, rest := strings.Join(args[:2], " "), args[2:]
	command, ok := map[string]struct {
		arguments int
		run       func(context.Context, *gophercloud.ServiceClient, []string) error
	}{
		"network list": {0, listNetworks},
		"subnet list":  {0, listSubnets},
		"subnet set":   {2, setGateway},
		"port list":    {0, listPorts},
		"port create":  {2, createPort},
		"port delete":  {1, deletePort},
		"quota set":    {2, setQuota},
	}[name]
	if !ok || len(rest) != command.arguments {
		return errors.New(usage)
	}
	cloud, err := neutron.Connect(ctx)
	if err != nil {
		return err
	}
	if err := command.run(ctx, cloud.Client, rest); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// printTable prints lines in aligned columns.
func printTable(lines [][]string) error {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	for _, line := range lines {
		fmt.Fprintln(out, strings.Join(line, "\t"))
	}
	return out.Flush()
}

func listNetworks(ctx context.Context, client *gophercloud.ServiceClient, _ []string) error {
	pages, err := networks.List(client, networks.ListOpts{}).AllPages(ctx)
	if err != nil {
		return err
	}
	all, err := networks.ExtractNetworks(pages)
	lines := [][]string{{"ID", "NAME", "DESCRIPTION"}}
	for _, n := range all {
		lines = append(lines, []string{n.ID, n.Name, n.Description})
	}
	return errors.Join(err, printTable(lines))
}

func listSubnets(ctx context.Context, client *gophercloud.ServiceClient, _ []string) error {
	pages, err := subnets.List(client, subnets.ListOpts{}).AllPages(ctx)
	if err != nil {
		return err
	}
	all, err := subnets.ExtractSubnets(pages)
	lines := [][]string{{"ID", "CIDR", "GATEWAY", "DESCRIPTION"}}
	for _, s := range all {
		lines = append(lines, []string{s.ID, s.CIDR, s.GatewayIP, s.Description})
	}
	return errors.Join(err, printTable(lines))
}

func setGateway(ctx context.Context, client *gophercloud.ServiceClient, args []string) error {
	_, err := subnets.Update(ctx, client, args[0], subnets.UpdateOpts{GatewayIP: &args[1]}).Extract()
	return err
}

func listPorts(ctx context.Context, client *gophercloud.ServiceClient, _ []string) error {
	pages, err := ports.List(client, ports.ListOpts{}).AllPages(ctx)
	if err != nil {
		return err
	}
	all, err := ports.ExtractPorts(pages)
	lines := [][]string{{"ID", "NAME", "NETWORK"}}
	for _, p := range all {
		lines = append(lines, []string{p.ID, p.Name, p.NetworkID})
	}
	return errors.Join(err, printTable(lines))
}

func createPort(ctx context.Context, client *gophercloud.ServiceClient, args []string) error {
	port, err := ports.Create(ctx, client, ports.CreateOpts{NetworkID: args[0], Name: args[1]}).Extract()
	if err != nil {
		return err
	}
	fmt.Println(port.ID)
	return nil
}

func deletePort(ctx context.Context, client *gophercloud.ServiceClient, args []string) error {
	return ports.Delete(ctx, client, args[0]).ExtractErr()
}

// setQuota limits how many networks a project may have. Only an administrator may do that.
func setQuota(ctx context.Context, client *gophercloud.ServiceClient, args []string) error {
	networks, err := strconv.Atoi(args[1])
	if err != nil {
		return fmt.Errorf("%q is not a number of networks", args[1])
	}
	_, err = quotas.Update(ctx, client, args[0], quotas.UpdateOpts{Network: &networks}).Extract()
	return err
}
