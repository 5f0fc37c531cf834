import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.gravitino.Catalog;
import org.apache.gravitino.MetadataObjects;
import org.apache.gravitino.MetadataObject;
import org.apache.gravitino.NameIdentifier;
import org.apache.gravitino.Namespace;
import org.apache.gravitino.authorization.Owner;
import org.apache.gravitino.authorization.Privileges;
import org.apache.gravitino.authorization.SecurableObjects;
import org.apache.gravitino.client.GravitinoAdminClient;
import org.apache.gravitino.client.GravitinoClient;
import org.apache.gravitino.client.GravitinoMetalake;
import org.apache.gravitino.exceptions.NoSuchTableException;
import org.apache.gravitino.exceptions.NonEmptySchemaException;
import org.apache.gravitino.exceptions.SchemaAlreadyExistsException;
import org.apache.gravitino.file.Fileset;
import org.apache.gravitino.model.Model;
import org.apache.gravitino.rel.Column;
import org.apache.gravitino.rel.Table;
import org.apache.gravitino.rel.TableCatalog;
import org.apache.gravitino.rel.TableChange;
import org.apache.gravitino.rel.expressions.distributions.Distributions;
import org.apache.gravitino.rel.expressions.sorts.SortOrder;
import org.apache.gravitino.rel.expressions.sorts.SortOrders;
import org.apache.gravitino.rel.expressions.NamedReference;
import org.apache.gravitino.rel.expressions.transforms.Transform;
import org.apache.gravitino.rel.expressions.transforms.Transforms;
import org.apache.gravitino.rel.indexes.Index;
import org.apache.gravitino.rel.indexes.Indexes;
import org.apache.gravitino.rel.types.Types;
import org.apache.gravitino.tag.Tag;

/** What a user of Gravitino's Java client does, against the server at the address given. It ends with 1 otherwise. */
public class JavaClient {
  static void check(boolean holds, String what) {
    if (!holds) {
      throw new AssertionError(what);
    }
  }

  public static void main(String[] arguments) throws Exception {
    String uri = arguments[0];
    try (GravitinoAdminClient admin = GravitinoAdminClient.builder(uri).withSimpleAuth().build()) {
      GravitinoMetalake made = admin.createMetalake("java", "made by Java", Map.of("k", "v"));
      check(made.comment().equals("made by Java"), "comment of the metalake");
      check(Arrays.stream(admin.listMetalakes()).anyMatch(one -> one.name().equals("java")), "list of metalakes");
    }
    try (GravitinoClient client =
        GravitinoClient.builder(uri).withMetalake("java").withSimpleAuth().build()) {
      relational(client);
      others(client);
      governance(client);
    }
    System.out.println("all is well");
  }

  static void relational(GravitinoClient client) {
    Catalog catalog = client.createCatalog("sales", Catalog.Type.RELATIONAL, "hive", "c", Map.of());
    catalog.asSchemas().createSchema("eu", "a schema", Map.of("a", "b"));
    try {
      catalog.asSchemas().createSchema("eu", "again", Map.of());
      check(false, "a schema was made twice");
    } catch (SchemaAlreadyExistsException expected) {
      check(expected.getMessage().contains("eu"), "message of a name that is taken");
    }
    TableCatalog tables = catalog.asTableCatalog();
    NameIdentifier name = NameIdentifier.of("eu", "orders");
    Column[] columns = {
      Column.of("id", Types.IntegerType.get(), "the id", false, false, Column.DEFAULT_VALUE_NOT_SET),
      Column.of("at", Types.TimestampType.withTimeZone(), "when"),
      Column.of("tags", Types.ListType.nullable(Types.StringType.get()), null),
      Column.of("price", Types.DecimalType.of(9, 2), null)
    };
    Transform[] partitioning = {Transforms.identity("id"), Transforms.day("at")};
    SortOrder[] orders = {SortOrders.ascending(NamedReference.field("id"))};
    Index[] indexes = {Indexes.primary("pk", new String[][] {{"id"}})};
    tables.createTable(
        name, columns, "all orders", Map.of("p", "q"), partitioning, Distributions.NONE, orders, indexes);
    Table table = tables.loadTable(name);
    check(table.columns().length == 4, "columns");
    check(table.columns()[0].dataType().equals(Types.IntegerType.get()), "type of a column");
    check(!table.columns()[0].nullable(), "null in a column");
    check(table.partitioning().length == 2, "partitioning");
    check(table.index().length == 1 && table.index()[0].type() == Index.IndexType.PRIMARY_KEY, "index");
    check(table.auditInfo().creator() != null && table.auditInfo().createTime() != null, "audit");
    Table changed =
        tables.alterTable(
            name,
            TableChange.addColumn(new String[] {"more"}, Types.LongType.get(), "more"),
            TableChange.renameColumn(new String[] {"price"}, "cost"),
            TableChange.updateComment("changed"),
            TableChange.setProperty("x", "y"));
    check(changed.comment().equals("changed") && changed.columns().length == 5, "the changed table");
    check(tables.listTables(Namespace.of("eu")).length == 1, "list of tables");
    try {
      tables.loadTable(NameIdentifier.of("eu", "none"));
      check(false, "a table that is not there was loaded");
    } catch (NoSuchTableException expected) {
      check(expected.getMessage().contains("none"), "message of what is missing");
    }
    try {
      catalog.asSchemas().dropSchema("eu", false);
      check(false, "a schema with a table was dropped");
    } catch (NonEmptySchemaException expected) {
      check(expected.getMessage().contains("eu"), "message of what is not empty");
    }
    check(!tables.dropTable(NameIdentifier.of("eu", "none")), "nothing was dropped");
  }

  static void others(GravitinoClient client) {
    Catalog files = client.createCatalog("files", Catalog.Type.FILESET, "c", Map.of());
    files.asSchemas().createSchema("s", null, Map.of());
    NameIdentifier name = NameIdentifier.of("s", "f");
    files.asFilesetCatalog().createFileset(name, "c", Fileset.Type.EXTERNAL, "file:///tmp/f", Map.of());
    check(files.asFilesetCatalog().loadFileset(name).storageLocation().equals("file:///tmp/f"), "place of a fileset");
    Catalog models = client.createCatalog("models", Catalog.Type.MODEL, "c", Map.of());
    models.asSchemas().createSchema("s", null, Map.of());
    NameIdentifier model = NameIdentifier.of("s", "m");
    Model made = models.asModelCatalog().registerModel(model, "c", Map.of());
    check(made.latestVersion() == 0, "no version yet");
    models.asModelCatalog().linkModelVersion(model, "s3://m/0", new String[] {"prod"}, "first", Map.of());
    check(models.asModelCatalog().getModelVersion(model, "prod").version() == 0, "the first version");
    check(models.asModelCatalog().listModelVersions(model).length == 1, "list of versions");
    Catalog topics = client.createCatalog("topics", Catalog.Type.MESSAGING, "kafka", "c", Map.of());
    check(topics.asSchemas().listSchemas() != null, "schemas of topics");
  }

  static void governance(GravitinoClient client) throws Exception {
    client.createTag("pii", "personal", Map.of());
    Table table = client.loadCatalog("sales").asTableCatalog().loadTable(NameIdentifier.of("eu", "orders"));
    table.supportsTags().associateTags(new String[] {"pii"}, null);
    Tag[] tags = table.supportsTags().listTagsInfo();
    check(tags.length == 1 && tags[0].name().equals("pii"), "tags of a table");
    check(client.getTag("pii").associatedObjects().objects().length == 1, "objects of a tag");
    client.addUser("ann");
    client.addGroup("staff");
    client.createRole(
        "reader",
        Map.of(),
        List.of(SecurableObjects.ofCatalog("sales", List.of(Privileges.UseCatalog.allow()))));
    check(client.grantRolesToUser(List.of("reader"), "ann").roles().contains("reader"), "roles of a user");
    check(client.getRole("reader").securableObjects().size() == 1, "what a role may");
    MetadataObject object = MetadataObjects.of("sales", "eu", MetadataObject.Type.SCHEMA);
    client.setOwner(object, "ann", Owner.Type.USER);
    check(client.getOwner(object).get().name().equals("ann"), "owner of a schema");
  }
}
