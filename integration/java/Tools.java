import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Kafka's command line tools, run one after the other in one JVM by their own main methods: a start of Java takes longer
 * than most of them. One JSON command a line, {"class":…, "args":[…], "stdin":…}; one answer a line, {"out":…, "err":…, "status":…}.
 */
public class Tools {
    static class Ended extends RuntimeException {
        Ended() {
            super("ended", null, false, false);
        }
    }

    static final Turnout out = new Turnout(), err = new Turnout();

    /** What the tool now running has ended with: its first exit counts, what it does with the exception is its own affair. */
    static volatile Map<String, Object> end;

    static void end(int status) {
        if (end == null) {
            System.out.flush();
            System.err.flush();
            end = Map.of("out", out.take(), "err", err.take(), "status", status);
        }
    }

    /** Standard output or error: a tool may have kept the stream, so the stream stays and where it leads to changes. */
    static class Turnout extends OutputStream {
        ByteArrayOutputStream to = new ByteArrayOutputStream();

        @Override
        public synchronized void write(int b) {
            to.write(b);
        }

        @Override
        public synchronized void write(byte[] b, int at, int n) {
            to.write(b, at, n);
        }

        synchronized String take() {
            String s = to.toString(StandardCharsets.UTF_8);
            to = new ByteArrayOutputStream();
            return s;
        }
    }

    /** Makes the tools' way to end the process end the tool alone. The class moved between 3.9 and 4.4. */
    static void catchExits() throws Exception {
        Class<?> exit;
        try {
            exit = Class.forName("org.apache.kafka.common.utils.internals.Exit");
        } catch (ClassNotFoundException e) {
            exit = Class.forName("org.apache.kafka.common.utils.Exit");
        }
        Class<?> procedure = Class.forName(exit.getName() + "$Procedure");
        Object ours = Proxy.newProxyInstance(Tools.class.getClassLoader(), new Class<?>[] {procedure}, (p, method, args) -> {
            if (args[1] != null) {
                System.err.println(args[1]);
            }
            end((Integer) args[0]);
            throw new Ended();
        });
        exit.getMethod("setExitProcedure", procedure).invoke(null, ours);
        exit.getMethod("setHaltProcedure", procedure).invoke(null, ours);
    }

    static void run(String name, List<String> args) throws Exception {
        end = null;
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) args.toArray(new String[0]));
            end(0);
        } catch (InvocationTargetException e) {
            if (end == null) {
                e.getCause().printStackTrace();
                end(1);
            }
        }
        out.take();
        err.take();
    }

    public static void main(String[] ignored) throws Exception {
        PrintStream answers = System.out;
        ObjectMapper json = new ObjectMapper();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        catchExits();
        for (String line; (line = in.readLine()) != null; ) {
            JsonNode c = json.readTree(line);
            List<String> args = new ArrayList<>();
            c.get("args").forEach(a -> args.add(a.asText()));
            System.setIn(new ByteArrayInputStream(c.path("stdin").asText().getBytes(StandardCharsets.UTF_8)));
            run(c.get("class").asText(), args);
            Map<String, Object> answer = new LinkedHashMap<>();
            answer.put("id", c.get("id").asInt());
            answer.put("value", end);
            answers.println(json.writeValueAsString(answer));
            answers.flush();
        }
        System.exit(0);
    }
}
