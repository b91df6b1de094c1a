import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.internals.AbstractPartitionAssignor;
import org.apache.kafka.common.Configurable;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * An assignor as somebody may have written it for the groups of a company. Members tell a weight in their user data
 * (setting own.weight); every partition, the highest first, goes to the member that has least for its weight, where
 * three partitions less are counted in the rack of the partition's leader; of equals the last by its name.
 */
public class OwnAssignor extends AbstractPartitionAssignor implements Configurable {
    /** How often a leader of a group has assigned. */
    static final Map<String, Integer> calls = new ConcurrentHashMap<>();

    private String group;
    private int weight = 1;

    @Override
    public void configure(Map<String, ?> configs) {
        group = (String) configs.get("group.id");
        if (configs.get("own.weight") != null) {
            weight = Integer.parseInt(configs.get("own.weight").toString());
        }
    }

    @Override
    public String name() {
        return "own";
    }

    @Override
    public ByteBuffer subscriptionUserData(Set<String> topics) {
        return ByteBuffer.allocate(4).putInt(0, weight);
    }

    @Override
    public Map<String, List<TopicPartition>> assign(Map<String, Integer> counts, Map<String, Subscription> members) {
        return assignPartitions(partitionInfosWithoutRacks(counts), members);
    }

    @Override
    public Map<String, List<TopicPartition>> assignPartitions(Map<String, List<PartitionInfo>> topics, Map<String, Subscription> members) {
        calls.merge(group, 1, Integer::sum);
        Map<String, List<TopicPartition>> all = new HashMap<>();
        TreeMap<MemberInfo, Subscription> ordered = new TreeMap<>();
        members.forEach((id, s) -> {
            all.put(id, new ArrayList<>());
            ordered.put(new MemberInfo(id, s.groupInstanceId()), s);
        });
        new TreeMap<>(topics).forEach((topic, partitions) -> {
            for (int i = partitions.size() - 1; i >= 0; i--) {
                PartitionInfo p = partitions.get(i);
                String best = null;
                double least = Double.MAX_VALUE;
                for (Map.Entry<MemberInfo, Subscription> m : ordered.entrySet()) {
                    Subscription s = m.getValue();
                    if (!s.topics().contains(topic)) {
                        continue;
                    }
                    boolean near = p.leader() != null && p.leader().rack() != null && p.leader().rack().equals(s.rackId().orElse(null));
                    double load = (double) all.get(m.getKey().memberId).size() / s.userData().getInt(s.userData().position()) - (near ? 3 : 0);
                    if (load <= least) {
                        best = m.getKey().memberId;
                        least = load;
                    }
                }
                if (best != null) {
                    all.get(best).add(new TopicPartition(topic, p.partition()));
                }
            }
        });
        return all;
    }

    /** Kafka's range assignor with what it does where replicas are in racks, which it leaves if all are in the same ones. */
    public static class RackRange extends RangeAssignor {
        public RackRange() throws ReflectiveOperationException {
            var field = AbstractPartitionAssignor.class.getDeclaredField("preferRackAwareLogic");
            field.setAccessible(true);
            field.set(this, true);
        }
    }
}
