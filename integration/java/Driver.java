import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ConsumerGroupListing;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Kafka's own client, driven as driver_test.go says: one JSON command a line, one answer a line. Its argument is the broker's address. */
public class Driver {
    static final ObjectMapper json = new ObjectMapper();
    static final PrintStream out = System.out;
    final String bootstrap;
    final Admin admin;
    final Map<String, KafkaProducer<String, String>> producers = new HashMap<>();
    final List<Member> members = new ArrayList<>();

    Driver(String bootstrap) {
        this.bootstrap = bootstrap;
        admin = Admin.create(common());
    }

    Properties common() {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        p.put("reconnect.backoff.max.ms", "500");
        return p;
    }

    static synchronized void say(Map<String, Object> line) throws Exception {
        out.println(json.writeValueAsString(line));
        out.flush();
    }

    /** One consumer. A KafkaConsumer belongs to one thread, so commands come to it between two polls. */
    class Member extends Thread {
        interface Step {
            void run(KafkaConsumer<String, String> c) throws Exception;
        }

        final int number;
        final String group, topic;
        final LinkedBlockingQueue<Step> todo = new LinkedBlockingQueue<>();
        boolean left;

        Member(int number, String group, String topic) {
            this.number = number;
            this.group = group;
            this.topic = topic;
            setDaemon(true);
        }

        @Override
        public void run() {
            Properties p = common();
            p.put("group.id", group);
            p.put("auto.offset.reset", "earliest");
            p.put("enable.auto.commit", "false");
            if ("consumer".equals(System.getenv("OTTLA_GROUP_PROTOCOL"))) {
                p.put("group.protocol", "consumer"); // the broker tells the interval of heartbeats
            } else {
                p.put("heartbeat.interval.ms", "200");
            }
            p.put("fetch.max.wait.ms", "200");
            p.put("key.deserializer", StringDeserializer.class.getName());
            p.put("value.deserializer", StringDeserializer.class.getName());
            KafkaConsumer<String, String> c = new KafkaConsumer<>(p);
            c.subscribe(List.of(topic));
            while (!left) {
                try {
                    Step step = todo.poll();
                    if (step != null) {
                        step.run(c);
                        continue;
                    }
                    List<Object> records = new ArrayList<>();
                    for (ConsumerRecord<String, String> r : c.poll(Duration.ofMillis(100))) {
                        records.add(List.of(r.partition(), r.offset(), r.key(), r.value(), r.timestamp()));
                    }
                    if (!records.isEmpty()) {
                        Map<String, Object> line = new LinkedHashMap<>();
                        line.put("member", number);
                        line.put("records", records);
                        say(line);
                    }
                } catch (Exception e) {
                    e.printStackTrace();
                }
            }
        }

        void inThread(Step step) throws Exception {
            CompletableFuture<Void> done = new CompletableFuture<>();
            todo.add(c -> {
                try {
                    step.run(c);
                    done.complete(null);
                } catch (Exception e) {
                    done.completeExceptionally(e);
                }
            });
            done.get(90, TimeUnit.SECONDS);
        }
    }

    Object run(String op, JsonNode a) throws Exception {
        String topic = a.path("topic").asText(), group = a.path("group").asText();
        switch (op) {
            case "codecs":
                return List.of("none", "gzip", "snappy", "lz4", "zstd");
            case "create":
                admin.createTopics(List.of(new NewTopic(topic, a.get("partitions").asInt(), (short) 1))).all().get(20, TimeUnit.SECONDS);
                return null;
            case "topics":
                return admin.listTopics().names().get(20, TimeUnit.SECONDS);
            case "leaders": {
                Map<Integer, Integer> leaders = new HashMap<>();
                for (TopicPartitionInfo p : admin.describeTopics(List.of(topic)).allTopicNames().get(20, TimeUnit.SECONDS).get(topic).partitions()) {
                    leaders.put(p.partition(), p.leader() == null ? -1 : p.leader().id());
                }
                return leaders;
            }
            case "send": {
                KafkaProducer<String, String> p = producers.computeIfAbsent(a.get("codec").asText(), this::producer);
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (JsonNode m : a.get("messages")) {
                    sent.add(p.send(new ProducerRecord<>(topic, null, m.get(2).asLong(), m.get(0).asText(), m.get(1).asText())));
                }
                for (Future<RecordMetadata> f : sent) {
                    f.get(60, TimeUnit.SECONDS);
                }
                return null;
            }
            case "join": {
                Member m = new Member(members.size() + 1, group, topic);
                members.add(m);
                m.start();
                return m.number;
            }
            case "commit":
                members.get(a.get("member").asInt() - 1).inThread(c -> c.commitSync(Duration.ofSeconds(60)));
                return null;
            case "leave": {
                Member m = members.get(a.get("member").asInt() - 1);
                m.inThread(c -> {
                    m.left = true;
                    c.close();
                });
                return null;
            }
            case "groups": {
                List<String> names = new ArrayList<>();
                for (ConsumerGroupListing g : admin.listConsumerGroups().all().get(20, TimeUnit.SECONDS)) {
                    names.add(g.groupId());
                }
                return names;
            }
            case "group": {
                ConsumerGroupDescription d = admin.describeConsumerGroups(List.of(group)).all().get(20, TimeUnit.SECONDS).get(group);
                return Map.of("state", d.state().toString(), "members", d.members().size());
            }
            case "committed": {
                Map<Integer, Long> at = new HashMap<>();
                admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get(20, TimeUnit.SECONDS).forEach((tp, o) -> {
                    if (tp.topic().equals(topic) && o != null) {
                        at.put(tp.partition(), o.offset());
                    }
                });
                return at;
            }
            case "offset_at": {
                long at = a.get("at").asLong();
                TopicPartition tp = new TopicPartition(topic, a.get("partition").asInt());
                OffsetSpec spec = at == -2 ? OffsetSpec.earliest() : at == -1 ? OffsetSpec.latest() : OffsetSpec.forTimestamp(at);
                return admin.listOffsets(Map.of(tp, spec)).all().get(20, TimeUnit.SECONDS).get(tp).offset();
            }
            default:
                throw new IllegalArgumentException("unknown command");
        }
    }

    KafkaProducer<String, String> producer(String codec) {
        Properties p = common();
        p.put("compression.type", codec);
        p.put("linger.ms", "5");
        p.put("key.serializer", StringSerializer.class.getName());
        p.put("value.serializer", StringSerializer.class.getName());
        return new KafkaProducer<>(p);
    }

    public static void main(String[] args) throws Exception {
        System.setOut(System.err); // what a library prints is no answer
        Driver d = new Driver(args[args.length - 1]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            JsonNode a = json.readTree(line);
            Map<String, Object> answer = new LinkedHashMap<>();
            answer.put("id", a.get("id").asInt());
            try {
                answer.put("value", d.run(a.get("op").asText(), a));
            } catch (Exception e) {
                e.printStackTrace();
                answer.put("error", a.get("op").asText() + ": " + e);
            }
            say(answer);
        }
        for (KafkaProducer<String, String> p : d.producers.values()) {
            p.close(Duration.ofSeconds(10));
        }
        d.admin.close(Duration.ofSeconds(10));
        System.exit(0);
    }
}
