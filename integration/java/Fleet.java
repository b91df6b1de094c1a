import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Many consumers of many groups in one JVM, driven as assignors_test.go says: one JSON command a line, one answer a line.
 * Every consumer reads, commits what it has read, and remembers it for its group. Its argument is the broker's address.
 */
public class Fleet {
    static final ObjectMapper json = new ObjectMapper();
    final String bootstrap;
    final Map<String, Member> members = new ConcurrentHashMap<>();

    /** The values that the members of a group have read. */
    final Map<String, Set<String>> seen = new ConcurrentHashMap<>();

    Fleet(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    static Properties consumer(String bootstrap, String group, JsonNode props) {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        p.put("group.id", group);
        p.put("reconnect.backoff.max.ms", "300");
        p.put("auto.offset.reset", "earliest");
        p.put("enable.auto.commit", "false");
        p.put("fetch.max.wait.ms", "300");
        p.put("key.deserializer", StringDeserializer.class.getName());
        p.put("value.deserializer", StringDeserializer.class.getName());
        props.fields().forEachRemaining(e -> p.put(e.getKey(), e.getValue().asText()));
        return p;
    }

    /** One consumer, which belongs to its thread; others see what it has left in the volatile fields. */
    class Member extends Thread implements ConsumerRebalanceListener {
        final Properties props;
        final List<String> topics = new ArrayList<>();
        final Set<String> read;
        volatile boolean ending;
        volatile List<String> assigned = List.of();
        volatile int generation = -1, revoked, lost;
        volatile String id = "", error = "";

        Member(String group, JsonNode a) {
            props = consumer(bootstrap, group, a.get("props"));
            a.get("topics").forEach(t -> topics.add(t.asText()));
            read = seen.computeIfAbsent(group, g -> ConcurrentHashMap.newKeySet());
            setDaemon(true);
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> ps) {}

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> ps) {
            revoked += ps.size();
            try {
                Thread.sleep(Long.parseLong(props.getProperty("fleet.revoke.ms", "0")));
            } catch (InterruptedException e) {
                throw new RuntimeException(e);
            }
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> ps) {
            lost += ps.size();
        }

        @Override
        public void run() {
            try (KafkaConsumer<String, String> c = new KafkaConsumer<>(props)) {
                c.subscribe(topics, this);
                boolean owing = false;
                while (!ending) {
                    ConsumerRecords<String, String> records = c.poll(Duration.ofMillis(100));
                    TreeSet<String> now = new TreeSet<>();
                    c.assignment().forEach(tp -> now.add(tp.toString()));
                    assigned = List.copyOf(now);
                    generation = c.groupMetadata().generationId();
                    id = c.groupMetadata().memberId();
                    for (ConsumerRecord<String, String> r : records) {
                        read.add(r.value());
                    }
                    owing |= !records.isEmpty();
                    if (owing) {
                        try {
                            c.commitSync(Duration.ofSeconds(20));
                            owing = false;
                        } catch (CommitFailedException | RebalanceInProgressException | RetriableException e) {
                            // after the next poll, for what it has then; who has the rest reads on from the commit before
                        }
                    }
                }
            } catch (Throwable e) {
                error = e.getClass().getSimpleName();
                System.err.println(props.get("client.id") + ": " + e);
            }
        }
    }

    Object run(String op, JsonNode a) throws Exception {
        String group = a.path("group").asText(), name = group + "/" + a.path("name").asText();
        switch (op) {
            case "open": {
                Member m = new Member(group, a);
                members.put(name, m);
                m.start();
                return null;
            }
            case "close": {
                Member m = members.remove(name);
                m.ending = true;
                m.join(TimeUnit.SECONDS.toMillis(40));
                if (m.isAlive()) {
                    throw new IllegalStateException("still closing after 40 s");
                }
                return m.error;
            }
            case "look": {
                Map<String, Object> all = new LinkedHashMap<>();
                members.forEach((n, m) -> {
                    if (n.startsWith(group + "/")) {
                        all.put(n.substring(group.length() + 1), Map.of("assigned", m.assigned, "generation", m.generation,
                            "id", m.id, "error", m.error, "revoked", m.revoked, "lost", m.lost));
                    }
                });
                return all;
            }
            case "seen":
                return seen.getOrDefault(group, Set.of()).size();
            case "calls":
                return OwnAssignor.calls.getOrDefault(group, 0);
            case "walk":
                return Walk.run(consumer(bootstrap, group, a.get("props")), a.get("topics").get(0).asText());
            default:
                throw new IllegalArgumentException("unknown command");
        }
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err); // what a library prints is no answer
        Fleet f = new Fleet(args[args.length - 1]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            JsonNode a = json.readTree(line);
            Thread t = new Thread(() -> { // a close takes a while, and many are asked at once
                Map<String, Object> answer = new LinkedHashMap<>();
                answer.put("id", a.get("id").asInt());
                try {
                    answer.put("value", f.run(a.get("op").asText(), a));
                } catch (Exception e) {
                    e.printStackTrace();
                    answer.put("error", a.get("op").asText() + ": " + e);
                }
                synchronized (answers) {
                    try {
                        answers.println(json.writeValueAsString(answer));
                    } catch (Exception e) {
                        e.printStackTrace();
                    }
                    answers.flush();
                }
            });
            t.setDaemon(true);
            t.start();
        }
        System.exit(0);
    }
}
