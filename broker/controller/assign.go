package controller

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"ottla/broker/metadata"
)

// assign spreads the replicas of new partitions over the brokers as
// org.apache.kafka.admin.AdminUtils.assignReplicasToBrokers: leaders by turns from a random
// broker on, each further replica shifted, the shift growing with every round. If all brokers
// have a rack, they are taken from the racks by turns, and racks and brokers without a replica of
// the partition come first. Start is the index of the first leader, -1: random; from is the
// number of the first partition. The caller has checked that there are enough brokers.
func assign(brokers []metadata.Broker, partitions, replicas, start, from int, random func(int) int) [][]int32 {
	racks := map[int32]string{}
	ids := make([]int32, len(brokers))
	for i, b := range brokers {
		ids[i] = b.ID
		if b.Rack != "" {
			racks[b.ID] = b.Rack
		}
	}
	number := 1 // of racks
	if aware := len(racks) == len(brokers); aware {
		ids = alternate(ids, racks)
		seen := map[string]struct{}{}
		for _, rack := range racks {
			seen[rack] = struct{}{}
		}
		number = len(seen)
	} else {
		clear(racks) // every broker is of rack ""
	}
	shift := start
	if start < 0 {
		start, shift = random(len(ids)), random(len(ids))
	}
	assignment := make([][]int32, partitions)
	block := make([]int32, partitions*replicas)
	for i := range assignment {
		p := from + i
		if p > 0 && p%len(ids) == 0 {
			shift++
		}
		first := (p + start) % len(ids)
		chosen := append(block[i*replicas:i*replicas:(i+1)*replicas], ids[first])
		used := []string{racks[ids[first]]}
		for k := 0; len(chosen) < replicas; k++ {
			id := ids[(first+1+(shift*number+k)%(len(ids)-1))%len(ids)]
			if slices.Contains(chosen, id) || slices.Contains(used, racks[id]) && len(used) < number {
				continue
			}
			chosen = append(chosen, id)
			if !slices.Contains(used, racks[id]) {
				used = append(used, racks[id])
			}
		}
		assignment[i] = chosen
	}
	return assignment
}

// alternate orders brokers by taking them from the racks by turns.
func alternate(ids []int32, racks map[int32]string) []int32 {
	by := map[string][]int32{}
	for _, id := range ids {
		by[racks[id]] = append(by[racks[id]], id)
	}
	names := slices.Sorted(maps.Keys(by))
	ordered := make([]int32, 0, len(ids))
	for turn := 0; len(ordered) < len(ids); turn++ {
		if rack := names[turn%len(names)]; turn/len(names) < len(by[rack]) {
			slices.Sort(by[rack])
			ordered = append(ordered, by[rack][turn/len(names)])
		}
	}
	return ordered
}

func joinIDs(ids []int32) string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = strconv.Itoa(int(id))
	}
	return strings.Join(texts, ", ")
}
