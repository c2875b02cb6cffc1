package millstream;

import net.jqwik.api.lifecycle.AroundPropertyHook;
import net.jqwik.api.lifecycle.PropagationMode;
import net.jqwik.api.lifecycle.PropertyExecutionResult;
import net.jqwik.api.lifecycle.PropertyExecutor;
import net.jqwik.api.lifecycle.PropertyLifecycleContext;

/**
 * How hard properties are tried, as in {@code tests/effort.py}: with a fixed seed, so that a commit
 * passes or fails alike on every machine, unless {@code MILLSTREAM_SEED} says another one, or
 * {@code random}; with {@code MILLSTREAM_PROOF=1} a hundred times as often.
 */
public final class Effort implements AroundPropertyHook {
  private static final int SHORT = 200, LONG = 20_000;

  @Override
  public PropertyExecutionResult aroundProperty(
      PropertyLifecycleContext context, PropertyExecutor property) {
    String seed = System.getenv().getOrDefault("MILLSTREAM_SEED", "0");
    if (!seed.equals("random")) context.attributes().setSeed(seed);
    boolean proof = "1".equals(System.getenv("MILLSTREAM_PROOF"));
    context.attributes().setTries(proof ? LONG : SHORT);
    return property.execute();
  }

  @Override
  public PropagationMode propagateTo() {
    return PropagationMode.ALL_DESCENDANTS;
  }

  @Override
  public int aroundPropertyProximity() {
    return -100; // outside of what reads these attributes
  }
}
