// Answers cases of tests/builders/dra_cases.py (a JSON list on standard input) by kube-scheduler's own allocator.
// tests/unit/controller/dra/published_allocations.json is recorded with it: build it in a copy of
// deploy/controlplane (`GOFLAGS=-mod=mod go build`), whose go.mod pins the release, then run
// `python -m tests.unit.controller.dra.recorded PROGRAM`.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

type Case struct {
	Node    *v1.Node                     `json:"node"`
	Slices  []*resourceapi.ResourceSlice `json:"slices"`
	Classes []*resourceapi.DeviceClass   `json:"classes"`
	Held    []*resourceapi.ResourceClaim `json:"held"`
	Wanted  []*resourceapi.ResourceClaim `json:"wanted"`
}
type Answer struct {
	Results []resourceapi.AllocationResult `json:"results"`
	Error   string                         `json:"error"`
}
type lister map[string]*resourceapi.DeviceClass

func (l lister) List() ([]*resourceapi.DeviceClass, error) { return nil, nil }
func (l lister) Get(name string) (*resourceapi.DeviceClass, error) {
	if c, ok := l[name]; ok {
		return c, nil
	}
	return nil, fmt.Errorf("no class %s", name)
}

func answer(c Case) (a Answer) {
	ctx := context.Background()
	features := structured.Features{AdminAccess: true, PrioritizedList: true, PartitionableDevices: true, DeviceTaints: true, DeviceBindingAndStatus: true, ConsumableCapacity: true}
	state := structured.AllocatedState{AllocatedDevices: sets.New[structured.DeviceID](), AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](), AggregatedCapacity: structured.NewConsumedCapacityCollection()}
	for _, claim := range c.Held {
		for _, r := range claim.Status.Allocation.Devices.Results {
			if r.AdminAccess != nil && *r.AdminAccess {
				continue
			}
			id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
			if r.ShareID != nil {
				state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, (*types.UID)(r.ShareID)))
				if r.ConsumedCapacity != nil {
					state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
				}
				continue
			}
			state.AllocatedDevices.Insert(id)
		}
	}
	classes := lister{}
	for _, class := range c.Classes {
		classes[class.Name] = class
	}
	allocator, err := structured.NewAllocator(ctx, features, state, classes, c.Slices, cel.NewCache(100, cel.Features{EnableConsumableCapacity: true}))
	if err != nil {
		return Answer{Error: err.Error()}
	}
	results, err := allocator.Allocate(ctx, c.Node, c.Wanted)
	if err != nil {
		return Answer{Error: err.Error()}
	}
	return Answer{Results: results}
}

func main() {
	var cases []Case
	if err := json.NewDecoder(os.Stdin).Decode(&cases); err != nil {
		panic(err)
	}
	answers := []Answer{}
	for _, c := range cases {
		answers = append(answers, answer(c))
	}
	json.NewEncoder(os.Stdout).Encode(answers)
}
