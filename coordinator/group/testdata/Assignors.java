import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.*;
import org.apache.kafka.coordinator.group.assignor.*;
import org.apache.kafka.coordinator.group.modern.*;

/** Records what Kafka's server-side assignors give for groups whose members come, go and change their topics: one JSON object a line. */
public class Assignors {
    static String hex(Uuid id) {
        return String.format("%016x%016x", id.getMostSignificantBits(), id.getLeastSignificantBits());
    }

    static Map<String, List<Integer>> plain(Map<Uuid, Set<Integer>> a) {
        Map<String, List<Integer>> out = new TreeMap<>();
        a.forEach((id, ps) -> {
            if (!ps.isEmpty()) out.put(hex(id), new ArrayList<>(new TreeSet<>(ps)));
        });
        return out;
    }

    public static void main(String[] args) throws Exception {
        ObjectMapper json = new ObjectMapper();
        Random rnd = new Random(848);
        for (int n = 0; n < 24; n++) {
            boolean same = n % 2 == 0;
            boolean range = n % 8 >= 6;
            ConsumerGroupPartitionAssignor assignor = range ? new RangeAssignor() : new UniformAssignor();
            // In the order of their ids, for Kafka's hash maps keep the order of insertion within a bucket.
            Map<Uuid, Integer> topics = new TreeMap<>(Comparator.comparing(Assignors::hex));
            for (int i = 1 + rnd.nextInt(5); i > 0; i--) topics.put(new Uuid(rnd.nextLong(), rnd.nextLong()), 1 + rnd.nextInt(9));
            Map<String, Map<Uuid, Set<Integer>>> targets = new HashMap<>();
            TreeMap<String, String> members = new TreeMap<>();
            Map<String, Set<Uuid>> reads = new HashMap<>();
            for (int step = 0; step < 5; step++) {
                int most = 1 + rnd.nextInt(n % 10 == 9 ? 18 : 6);
                while (members.size() > most) {
                    String out = members.firstKey();
                    members.remove(out);
                    targets.remove(out);
                }
                while (members.size() < most) {
                    String id = Long.toString(rnd.nextLong() >>> 1, 36);
                    members.put(id, rnd.nextInt(4) == 0 ? "i" + rnd.nextInt(1000) : "");
                    targets.put(id, Map.of());
                }
                if (rnd.nextInt(3) == 0) topics.replaceAll((id, p) -> p + rnd.nextInt(2));
                Map<String, MemberSubscriptionAndAssignmentImpl> specs = new HashMap<>();
                List<Object> told = new ArrayList<>();
                Map<Uuid, Map<Integer, String>> inverted = new HashMap<>();
                Map<Uuid, Integer> subscribers = new HashMap<>();
                for (String id : members.keySet()) {
                    Set<Uuid> mine = new HashSet<>();
                    if (same) mine.addAll(topics.keySet());
                    else {
                        mine.addAll(reads.getOrDefault(id, Set.of()));
                        if (mine.isEmpty() || rnd.nextInt(4) == 0) for (Uuid t : topics.keySet()) if (rnd.nextBoolean()) mine.add(t);
                    }
                    reads.put(id, mine);
                    mine.forEach(t -> subscribers.merge(t, 1, Integer::sum));
                    String instance = members.get(id);
                    Optional<String> i = instance.isEmpty() ? Optional.empty() : Optional.of(instance);
                    Map<Uuid, Set<Integer>> had = targets.get(id);
                    specs.put(id, new MemberSubscriptionAndAssignmentImpl(Optional.empty(), i, mine, new Assignment(had)));
                    had.forEach((t, ps) -> ps.forEach(p -> inverted.computeIfAbsent(t, x -> new HashMap<>()).put(p, id)));
                    Map<String, Object> m = new TreeMap<>();
                    m.put("id", id);
                    if (!instance.isEmpty()) m.put("instance", instance);
                    List<String> names = new ArrayList<>();
                    mine.forEach(t -> names.add(hex(t)));
                    Collections.sort(names);
                    m.put("topics", names);
                    m.put("had", plain(had));
                    told.add(m);
                }
                boolean even = subscribers.values().stream().allMatch(c -> c == members.size());
                Map<String, Integer> sizes = new TreeMap<>();
                topics.forEach((t, p) -> sizes.put(hex(t), p));
                GroupAssignment got = assignor.assign(
                    new GroupSpecImpl(specs, even ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS, inverted),
                    new SubscribedTopicDescriber() {
                        public int numPartitions(Uuid id) { return topics.getOrDefault(id, -1); }
                        public Set<String> racksForPartition(Uuid id, int p) { return Set.of(); }
                    });
                Map<String, Object> want = new TreeMap<>();
                for (String id : members.keySet()) {
                    Map<Uuid, Set<Integer>> a = got.members().containsKey(id) ? got.members().get(id).partitions() : Map.of();
                    Map<Uuid, Set<Integer>> kept = new HashMap<>();
                    for (Uuid t : topics.keySet()) if (a.containsKey(t) && !a.get(t).isEmpty()) kept.put(t, new HashSet<>(a.get(t)));
                    targets.put(id, Collections.unmodifiableMap(kept));
                    want.put(id, plain(kept));
                }
                Map<String, Object> line = new LinkedHashMap<>();
                line.put("assignor", range ? "range" : "uniform");
                line.put("topics", sizes);
                line.put("members", told);
                line.put("want", want);
                System.out.println(json.writeValueAsString(line));
            }
        }
    }
}
