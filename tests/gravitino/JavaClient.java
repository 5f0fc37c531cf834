import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.gravitino.Catalog;
import org.apache.gravitino.CatalogChange;
import org.apache.gravitino.MetadataObject;
import org.apache.gravitino.MetadataObjects;
import org.apache.gravitino.MetalakeChange;
import org.apache.gravitino.NameIdentifier;
import org.apache.gravitino.Namespace;
import org.apache.gravitino.SchemaChange;
import org.apache.gravitino.authorization.Owner;
import org.apache.gravitino.authorization.Privileges;
import org.apache.gravitino.authorization.SecurableObjects;
import org.apache.gravitino.client.GravitinoAdminClient;
import org.apache.gravitino.client.GravitinoClient;
import org.apache.gravitino.credential.S3SecretKeyCredential;
import org.apache.gravitino.exceptions.*;
import org.apache.gravitino.file.Fileset;
import org.apache.gravitino.file.FilesetCatalog;
import org.apache.gravitino.file.FilesetChange;
import org.apache.gravitino.function.Function;
import org.apache.gravitino.function.FunctionCatalog;
import org.apache.gravitino.function.FunctionChange;
import org.apache.gravitino.function.FunctionDefinition;
import org.apache.gravitino.function.FunctionDefinitions;
import org.apache.gravitino.function.FunctionImpl;
import org.apache.gravitino.function.FunctionImpls;
import org.apache.gravitino.function.FunctionParam;
import org.apache.gravitino.function.FunctionParams;
import org.apache.gravitino.function.FunctionType;
import org.apache.gravitino.function.SQLImpl;
import org.apache.gravitino.job.JobHandle;
import org.apache.gravitino.job.JobTemplateChange;
import org.apache.gravitino.job.ShellJobTemplate;
import org.apache.gravitino.messaging.TopicCatalog;
import org.apache.gravitino.messaging.TopicChange;
import org.apache.gravitino.model.ModelCatalog;
import org.apache.gravitino.model.ModelChange;
import org.apache.gravitino.model.ModelVersionChange;
import org.apache.gravitino.policy.PolicyChange;
import org.apache.gravitino.policy.PolicyContents;
import org.apache.gravitino.rel.Column;
import org.apache.gravitino.rel.Representation;
import org.apache.gravitino.rel.SQLRepresentation;
import org.apache.gravitino.rel.SupportsPartitions;
import org.apache.gravitino.rel.Table;
import org.apache.gravitino.rel.TableCatalog;
import org.apache.gravitino.rel.TableChange;
import org.apache.gravitino.rel.View;
import org.apache.gravitino.rel.ViewCatalog;
import org.apache.gravitino.rel.ViewChange;
import org.apache.gravitino.rel.expressions.NamedReference;
import org.apache.gravitino.rel.expressions.distributions.Distributions;
import org.apache.gravitino.rel.expressions.literals.Literal;
import org.apache.gravitino.rel.expressions.literals.Literals;
import org.apache.gravitino.rel.expressions.sorts.SortOrder;
import org.apache.gravitino.rel.expressions.sorts.SortOrders;
import org.apache.gravitino.rel.expressions.transforms.Transform;
import org.apache.gravitino.rel.expressions.transforms.Transforms;
import org.apache.gravitino.rel.indexes.Index;
import org.apache.gravitino.rel.indexes.Indexes;
import org.apache.gravitino.rel.partitions.Partitions;
import org.apache.gravitino.rel.types.Types;
import org.apache.gravitino.stats.PartitionRange;
import org.apache.gravitino.stats.PartitionStatistics;
import org.apache.gravitino.stats.PartitionStatisticsModification;
import org.apache.gravitino.stats.Statistic;
import org.apache.gravitino.stats.StatisticValues;
import org.apache.gravitino.stats.SupportsPartitionStatistics;
import org.apache.gravitino.tag.TagChange;

/** What a user of Gravitino's Java client does, at the address given. It fails where the client sees something else. */
public class JavaClient {
  static final Map<String, String> NONE = Map.of();
  static final NameIdentifier TABLE = NameIdentifier.of("eu", "orders");

  interface Call {
    void run() throws Exception;
  }

  static void check(boolean holds, String what) {
    if (!holds) {
      throw new AssertionError(what);
    }
  }

  static void same(Object expected, Object found) {
    if (!expected.equals(found)) {
      throw new AssertionError("expected " + expected + ", found " + found);
    }
  }

  /** The call fails with an error of this class, and of no class below it. */
  static void raises(Class<? extends Exception> expected, Call call) {
    try {
      call.run();
    } catch (Exception error) {
      if (error.getClass() != expected) {
        throw new AssertionError("expected " + expected.getName() + ", found another error", error);
      }
      return;
    }
    throw new AssertionError("expected " + expected.getName() + ", found none");
  }

  static List<String> sorted(String[] names) {
    return Arrays.stream(names).sorted().toList();
  }

  static List<String> sorted(NameIdentifier[] names) {
    return Arrays.stream(names).map(NameIdentifier::name).sorted().toList();
  }

  public static void main(String[] arguments) throws Exception {
    String uri = arguments[0];
    try (GravitinoAdminClient admin = GravitinoAdminClient.builder(uri).withSimpleAuth("eve").build()) {
      metalakes(admin);
      try (GravitinoClient client = GravitinoClient.builder(uri).withMetalake("java").withSimpleAuth("eve").build()) {
        Catalog catalog = catalogs(client);
        schemas(catalog);
        tables(catalog.asTableCatalog());
        partitions(catalog.asTableCatalog().loadTable(TABLE));
        statistics(catalog.asTableCatalog().loadTable(TABLE));
        views(catalog.asViewCatalog());
        functions(catalog.asFunctionCatalog());
        filesets(client);
        topics(client);
        models(client);
        tags(client, catalog.asTableCatalog().loadTable(TABLE));
        policies(client, catalog.asTableCatalog().loadTable(TABLE));
        permissions(client);
        owners(client);
        credentials(client);
        jobs(client);
        dropped(admin, client);
      }
    }
    System.out.println("all is well");
  }

  static void metalakes(GravitinoAdminClient admin) {
    check(admin.serverVersion().version() != null, "version of the server");
    same("made by Java", admin.createMetalake("java", "made by Java", Map.of("k", "v")).comment());
    raises(MetalakeAlreadyExistsException.class, () -> admin.createMetalake("java", "", NONE));
    raises(NoSuchMetalakeException.class, () -> admin.loadMetalake("none"));
    check(Arrays.stream(admin.listMetalakes()).anyMatch(one -> one.name().equals("java")), "list of metalakes");
    same("b", admin.alterMetalake("java", MetalakeChange.setProperty("a", "b")).properties().get("a"));
    same("eve", admin.loadMetalake("java").auditInfo().creator());
    admin.createMetalake("gone", "", NONE);
    raises(MetalakeInUseException.class, () -> admin.dropMetalake("gone"));
    admin.disableMetalake("gone");
    check(admin.dropMetalake("gone") && !admin.dropMetalake("gone"), "a metalake is dropped once");
  }

  static Catalog catalogs(GravitinoClient client) {
    client.createCatalog("sold", Catalog.Type.RELATIONAL, "hive", "c", Map.of("a", "b"));
    raises(
        CatalogAlreadyExistsException.class,
        () -> client.createCatalog("sold", Catalog.Type.RELATIONAL, "hive", "", NONE));
    raises(
        IllegalArgumentException.class,
        () -> client.createCatalog("odd", Catalog.Type.RELATIONAL, "no-such-provider", "", NONE));
    raises(NoSuchCatalogException.class, () -> client.loadCatalog("none"));
    same("sales", client.alterCatalog("sold", CatalogChange.rename("sales")).name());
    same(List.of("sales"), sorted(client.listCatalogs()));
    same("hive", client.listCatalogsInfo()[0].provider());
    raises(CatalogInUseException.class, () -> client.dropCatalog("sales"));
    client.disableCatalog("sales");
    raises(CatalogNotInUseException.class, () -> client.loadCatalog("sales").asSchemas().createSchema("x", "", NONE));
    client.enableCatalog("sales");
    return client.loadCatalog("sales");
  }

  static void schemas(Catalog catalog) {
    catalog.asSchemas().createSchema("eu", "a schema", Map.of("a", "b"));
    raises(SchemaAlreadyExistsException.class, () -> catalog.asSchemas().createSchema("eu", "", NONE));
    raises(NoSuchSchemaException.class, () -> catalog.asSchemas().loadSchema("none"));
    same("d", catalog.asSchemas().alterSchema("eu", SchemaChange.setProperty("c", "d")).properties().get("c"));
    same(List.of("eu"), sorted(catalog.asSchemas().listSchemas()));
    check(!catalog.asSchemas().dropSchema("none", false), "nothing was dropped");
  }

  static void tables(TableCatalog tables) {
    Column[] columns = {
      Column.of("id", Types.IntegerType.get(), "the id", false, false, Column.DEFAULT_VALUE_NOT_SET),
      Column.of("day", Types.DateType.get(), "when"),
      Column.of("tags", Types.ListType.nullable(Types.StringType.get()), null),
      Column.of("price", Types.DecimalType.of(9, 2), null),
      Column.of("n", Types.LongType.get(), null, true, false, Literals.longLiteral(7L))
    };
    Transform[] partitioning = {Transforms.identity("day")};
    SortOrder[] orders = {SortOrders.ascending(NamedReference.field("id"))};
    Index[] indexes = {Indexes.primary("pk", new String[][] {{"id"}})};
    tables.createTable(
        TABLE, columns, "all", Map.of("p", "q"), partitioning, Distributions.hash(4, NamedReference.field("id")),
        orders, indexes);
    raises(
        TableAlreadyExistsException.class,
        () -> tables.createTable(TABLE, columns, "", NONE, partitioning, Distributions.NONE, orders, indexes));
    Table table = tables.loadTable(TABLE);
    for (int at = 0; at < columns.length; at++) {
      same(columns[at].name(), table.columns()[at].name());
      same(columns[at].dataType(), table.columns()[at].dataType());
    }
    check(!table.columns()[0].nullable() && table.columns()[1].nullable(), "null in a column");
    same("7", ((Literal<?>) table.columns()[4].defaultValue()).value().toString());
    same(1, table.partitioning().length);
    same(4, table.distribution().number());
    same(1, table.sortOrder().length);
    same(Index.IndexType.PRIMARY_KEY, table.index()[0].type());
    same("eve", table.auditInfo().creator());
    check(table.auditInfo().createTime() != null, "time of the audit");
    Table changed =
        tables.alterTable(
            TABLE,
            TableChange.addColumn(new String[] {"more"}, Types.LongType.get(), "more"),
            TableChange.renameColumn(new String[] {"price"}, "cost"),
            TableChange.updateComment("changed"),
            TableChange.setProperty("x", "y"));
    same("changed", changed.comment());
    same(6, changed.columns().length);
    same(List.of("orders"), sorted(tables.listTables(Namespace.of("eu"))));
    raises(NoSuchTableException.class, () -> tables.loadTable(NameIdentifier.of("eu", "none")));
    raises(NoSuchSchemaException.class, () -> tables.listTables(Namespace.of("none")));
    raises(IllegalArgumentException.class, () -> tables.alterTable(TABLE, TableChange.rename("a b")));
    check(!tables.dropTable(NameIdentifier.of("eu", "none")), "nothing was dropped");
  }

  static void partitions(Table table) {
    SupportsPartitions partitions = table.supportPartitions();
    String[][] fields = {{"day"}};
    Literal<?>[] values = {Literals.dateLiteral("2025-03-04")};
    partitions.addPartition(Partitions.identity("day=2025-03-04", fields, values, Map.of("k", "v")));
    raises(
        PartitionAlreadyExistsException.class,
        () -> partitions.addPartition(Partitions.identity("day=2025-03-04", fields, values, NONE)));
    same(List.of("day=2025-03-04"), sorted(partitions.listPartitionNames()));
    same("v", partitions.getPartition("day=2025-03-04").properties().get("k"));
    same(1, partitions.listPartitions().length);
    raises(NoSuchPartitionException.class, () -> partitions.getPartition("none"));
    SupportsPartitionStatistics measured = table.supportsPartitionStatistics();
    measured.updatePartitionStatistics(
        List.of(PartitionStatisticsModification.update("day=2025-03-04", Map.of("custom-rows", StatisticValues.longValue(3)))));
    List<PartitionStatistics> found = measured.listPartitionStatistics(PartitionRange.ALL_PARTITIONS);
    same("day=2025-03-04", found.get(0).partitionName());
    same(3L, found.get(0).statistics()[0].value().get().value());
    PartitionRange before = PartitionRange.upTo("day=2025-03-04", PartitionRange.BoundType.OPEN);
    same(List.of(), measured.listPartitionStatistics(before));
    check(
        measured.dropPartitionStatistics(
            List.of(PartitionStatisticsModification.drop("day=2025-03-04", List.of("custom-rows")))),
        "a statistic of a partition is dropped");
    check(partitions.dropPartition("day=2025-03-04"), "a partition is dropped");
    check(!partitions.dropPartition("day=2025-03-04"), "a partition is dropped once");
  }

  static void statistics(Table table) {
    table.supportsStatistics().updateStatistics(Map.of("custom-rows", StatisticValues.longValue(12)));
    List<Statistic> found = table.supportsStatistics().listStatistics();
    same(List.of("custom-rows"), found.stream().map(Statistic::name).toList());
    same(12L, found.get(0).value().get().value());
    raises(
        IllegalStatisticNameException.class,
        () -> table.supportsStatistics().updateStatistics(Map.of("rows", StatisticValues.longValue(1))));
    check(table.supportsStatistics().dropStatistics(List.of("custom-rows")), "a statistic is dropped");
    same(List.of(), table.supportsStatistics().listStatistics());
  }

  static void views(ViewCatalog views) {
    NameIdentifier name = NameIdentifier.of("eu", "big");
    Column[] columns = {Column.of("id", Types.IntegerType.get(), null)};
    Representation[] texts = {
      SQLRepresentation.builder().withDialect("spark").withSql("SELECT id FROM orders").build()
    };
    View made = views.createView(name, "c", columns, texts, "sales", "eu", Map.of("k", "v"));
    same("SELECT id FROM orders", made.sqlFor("spark").get().sql());
    raises(ViewAlreadyExistsException.class, () -> views.createView(name, "c", columns, texts, null, null, NONE));
    same("y", views.alterView(name, ViewChange.setProperty("x", "y")).properties().get("x"));
    same(List.of("big"), sorted(views.listViews(Namespace.of("eu"))));
    raises(NoSuchViewException.class, () -> views.loadView(NameIdentifier.of("eu", "none")));
    check(views.dropView(name) && !views.dropView(name), "a view is dropped once");
  }

  static void functions(FunctionCatalog functions) {
    NameIdentifier name = NameIdentifier.of("eu", "plus");
    FunctionParam[] parameters = FunctionParams.of(FunctionParams.of("x", Types.IntegerType.get(), "a number"));
    FunctionImpl spark = FunctionImpls.ofSql(FunctionImpl.RuntimeType.SPARK, "x + 1");
    FunctionImpl trino = FunctionImpls.ofSql(FunctionImpl.RuntimeType.TRINO, "x + 2");
    FunctionDefinition[] one =
        FunctionDefinitions.of(
            FunctionDefinitions.of(parameters, Types.IntegerType.get(), FunctionImpls.of(spark)));
    Function made = functions.registerFunction(name, "adds one", FunctionType.SCALAR, true, one);
    same("x + 1", ((SQLImpl) made.definitions()[0].impls()[0]).sql());
    raises(
        FunctionAlreadyExistsException.class,
        () -> functions.registerFunction(name, "", FunctionType.SCALAR, true, one));
    same(2, functions.alterFunction(name, FunctionChange.addImpl(parameters, trino)).definitions()[0].impls().length);
    same(List.of("plus"), sorted(functions.listFunctions(Namespace.of("eu"))));
    same("adds one", functions.listFunctionInfos(Namespace.of("eu"))[0].comment());
    raises(NoSuchFunctionException.class, () -> functions.getFunction(NameIdentifier.of("eu", "none")));
    check(functions.dropFunction(name) && !functions.dropFunction(name), "a function is dropped once");
  }

  static void filesets(GravitinoClient client) {
    Catalog catalog = client.createCatalog("files", Catalog.Type.FILESET, "c", Map.of("location", "s3://b/x"));
    catalog.asSchemas().createSchema("s", null, NONE);
    FilesetCatalog filesets = catalog.asFilesetCatalog();
    NameIdentifier name = NameIdentifier.of("s", "f");
    same("s3://b/x/s/f", filesets.createFileset(name, "c", Fileset.Type.MANAGED, null, NONE).storageLocation());
    raises(
        FilesetAlreadyExistsException.class,
        () -> filesets.createFileset(name, "c", Fileset.Type.MANAGED, null, NONE));
    Fileset two =
        filesets.createMultipleLocationFileset(
            NameIdentifier.of("s", "two"), "c", Fileset.Type.EXTERNAL,
            Map.of("a", "file:///tmp/a", "b", "file:///tmp/b"), Map.of("default-location-name", "a"));
    same("file:///tmp/b", two.storageLocations().get("b"));
    same("file:///tmp/b/part", filesets.getFileLocation(NameIdentifier.of("s", "two"), "/part", "b"));
    same("g", filesets.alterFileset(name, FilesetChange.rename("g"), FilesetChange.setProperty("x", "y")).name());
    same(List.of("g", "two"), sorted(filesets.listFilesets(Namespace.of("s"))));
    raises(NoSuchFilesetException.class, () -> filesets.loadFileset(name));
    check(!filesets.dropFileset(name), "nothing was dropped");
  }

  static void topics(GravitinoClient client) {
    Catalog catalog = client.createCatalog("topics", Catalog.Type.MESSAGING, "kafka", "c", Map.of("bootstrap.servers", "b:1"));
    catalog.asSchemas().createSchema("default", null, NONE);
    TopicCatalog topics = catalog.asTopicCatalog();
    NameIdentifier name = NameIdentifier.of("default", "t");
    same("c", topics.createTopic(name, "c", null, Map.of("k", "v")).comment());
    raises(TopicAlreadyExistsException.class, () -> topics.createTopic(name, "c", null, NONE));
    same("y", topics.alterTopic(name, TopicChange.setProperty("x", "y")).properties().get("x"));
    same(List.of("t"), sorted(topics.listTopics(Namespace.of("default"))));
    raises(NoSuchTopicException.class, () -> topics.loadTopic(NameIdentifier.of("default", "none")));
    check(topics.dropTopic(name) && !topics.dropTopic(name), "a topic is dropped once");
  }

  static void models(GravitinoClient client) {
    Catalog catalog = client.createCatalog("models", Catalog.Type.MODEL, "c", NONE);
    catalog.asSchemas().createSchema("s", null, NONE);
    ModelCatalog models = catalog.asModelCatalog();
    NameIdentifier name = NameIdentifier.of("s", "m");
    same(0, models.registerModel(name, "c", NONE).latestVersion());
    raises(ModelAlreadyExistsException.class, () -> models.registerModel(name, "c", NONE));
    models.linkModelVersion(name, "s3://m/0", new String[] {"prod"}, "first", NONE);
    raises(
        ModelVersionAliasesAlreadyExistException.class,
        () -> models.linkModelVersion(name, "s3://m/1", new String[] {"prod"}, "second", NONE));
    models.linkModelVersion(name, Map.of("a", "s3://m/a", "b", "s3://m/b"), new String[0], "second", NONE);
    same(0, models.getModelVersion(name, "prod").version());
    same("s3://m/b", models.getModelVersionUri(name, 1, "b"));
    same(2, models.listModelVersions(name).length);
    same("2nd", models.alterModelVersion(name, 1, ModelVersionChange.updateComment("2nd")).comment());
    raises(NoSuchModelVersionException.class, () -> models.getModelVersion(name, 7));
    raises(NoSuchModelVersionURINameException.class, () -> models.getModelVersionUri(name, 1, "none"));
    raises(NoSuchModelException.class, () -> models.getModel(NameIdentifier.of("s", "none")));
    check(models.deleteModelVersion(name, "prod") && !models.deleteModelVersion(name, 0), "a version is deleted once");
    same("n", models.alterModel(name, ModelChange.rename("n")).name());
    same(List.of("n"), sorted(models.listModels(Namespace.of("s"))));
  }

  static void tags(GravitinoClient client, Table table) {
    client.createTag("pii", "personal", Map.of("k", "v"));
    raises(TagAlreadyExistsException.class, () -> client.createTag("pii", "", NONE));
    raises(NoSuchTagException.class, () -> client.getTag("none"));
    same("very", client.alterTag("pii", TagChange.updateComment("very")).comment());
    same(List.of("pii"), sorted(table.supportsTags().associateTags(new String[] {"pii"}, null)));
    raises(
        TagAlreadyAssociatedException.class, () -> table.supportsTags().associateTags(new String[] {"pii"}, null));
    same("pii", table.supportsTags().listTagsInfo()[0].name());
    table.columns()[0].supportsTags().associateTags(new String[] {"pii"}, null);
    same("very", table.columns()[0].supportsTags().getTag("pii").comment());
    same(
        Set.of(MetadataObject.Type.TABLE, MetadataObject.Type.COLUMN),
        Set.copyOf(Arrays.stream(client.getTag("pii").associatedObjects().objects()).map(MetadataObject::type).toList()));
    same(List.of("pii"), sorted(client.listTags()));
  }

  static void policies(GravitinoClient client, Table table) {
    Set<MetadataObject.Type> kinds = Set.of(MetadataObject.Type.TABLE);
    client.createPolicy("keep", "custom", "c", true, PolicyContents.custom(Map.of("days", 7), kinds, NONE));
    raises(
        PolicyAlreadyExistsException.class,
        () -> client.createPolicy("keep", "custom", "c", true, PolicyContents.custom(Map.of("days", 7), kinds, NONE)));
    raises(NoSuchPolicyException.class, () -> client.getPolicy("none"));
    same("changed", client.alterPolicy("keep", PolicyChange.updateComment("changed")).comment());
    same(7, client.getPolicy("keep").content().rules().get("days"));
    client.disablePolicy("keep");
    check(!client.getPolicy("keep").enabled(), "a policy is off");
    client.enablePolicy("keep");
    same(List.of("keep"), sorted(table.supportsPolicies().associatePolicies(new String[] {"keep"}, null)));
    raises(
        PolicyAlreadyAssociatedException.class,
        () -> table.supportsPolicies().associatePolicies(new String[] {"keep"}, null));
    same("keep", table.supportsPolicies().listPolicyInfos()[0].name());
    same(1, client.getPolicy("keep").associatedObjects().count());
    same(List.of("keep"), sorted(client.listPolicies()));
  }

  static void permissions(GravitinoClient client) {
    same("ann", client.addUser("ann").name());
    raises(UserAlreadyExistsException.class, () -> client.addUser("ann"));
    raises(NoSuchUserException.class, () -> client.getUser("none"));
    client.addGroup("staff");
    raises(GroupAlreadyExistsException.class, () -> client.addGroup("staff"));
    raises(NoSuchGroupException.class, () -> client.getGroup("none"));
    client.createRole(
        "reader", NONE, List.of(SecurableObjects.ofCatalog("sales", List.of(Privileges.UseCatalog.allow()))));
    raises(RoleAlreadyExistsException.class, () -> client.createRole("reader", NONE, List.of()));
    raises(NoSuchRoleException.class, () -> client.getRole("none"));
    same(List.of("reader"), client.grantRolesToUser(List.of("reader"), "ann").roles());
    same(List.of("reader"), client.grantRolesToGroup(List.of("reader"), "staff").roles());
    raises(NoSuchUserException.class, () -> client.grantRolesToUser(List.of("reader"), "none"));
    raises(IllegalRoleException.class, () -> client.grantRolesToUser(List.of("none"), "ann"));
    raises(
        IllegalMetadataObjectException.class,
        () -> client.createRole(
            "other", NONE, List.of(SecurableObjects.ofCatalog("none", List.of(Privileges.UseCatalog.allow())))));
    raises(
        IllegalPrivilegeException.class,
        () -> client.createRole(
            "other", NONE, List.of(SecurableObjects.ofCatalog("sales", List.of(Privileges.ManageUsers.allow())))));
    raises(
        NoSuchMetadataObjectException.class,
        () -> client.grantPrivilegesToRole(
            "reader", MetadataObjects.of(null, "none", MetadataObject.Type.CATALOG), Set.of(Privileges.UseCatalog.allow())));
    MetadataObject schema = MetadataObjects.of("sales", "eu", MetadataObject.Type.SCHEMA);
    same(2, client.grantPrivilegesToRole("reader", schema, Set.of(Privileges.UseSchema.allow())).securableObjects().size());
    same(1, client.revokePrivilegesFromRole("reader", schema, Set.of(Privileges.UseSchema.allow())).securableObjects().size());
    same(List.of(), client.revokeRolesFromUser(List.of("reader"), "ann").roles());
    same(List.of("ann"), sorted(client.listUserNames()));
    same(List.of("staff"), sorted(client.listGroupNames()));
    same(List.of("reader"), sorted(client.listRoleNames()));
    check(client.deleteRole("reader") && !client.deleteRole("reader"), "a role is deleted once");
    check(client.removeGroup("staff") && !client.removeGroup("staff"), "a group is removed once");
  }

  static void owners(GravitinoClient client) {
    MetadataObject object = MetadataObjects.of("sales", "eu", MetadataObject.Type.SCHEMA);
    client.setOwner(object, "ann", Owner.Type.USER);
    same("ann", client.getOwner(object).get().name());
    raises(
        NoSuchMetadataObjectException.class,
        () -> client.getOwner(MetadataObjects.of("sales", "none", MetadataObject.Type.SCHEMA)));
  }

  static void credentials(GravitinoClient client) {
    Map<String, String> properties =
        Map.of(
            "location", "s3://b/x", "credential-providers", "s3-secret-key",
            "s3-access-key-id", "AK", "s3-secret-access-key", "secret:env:METASTORE_TEST_S3_KEY");
    Catalog catalog = client.createCatalog("keys", Catalog.Type.FILESET, "c", properties);
    S3SecretKeyCredential found = (S3SecretKeyCredential) catalog.supportsCredentials().getCredentials()[0];
    same("AK", found.accessKeyId());
    same("s3cr3t", found.secretAccessKey());
  }

  static void jobs(GravitinoClient client) throws Exception {
    ShellJobTemplate template =
        ShellJobTemplate.builder()
            .withName("say")
            .withComment("says it")
            .withExecutable("/bin/sh")
            .withArguments(List.of("-c", "test {{word}} = hello"))
            .withEnvironments(Map.of("WORD", "{{word}}"))
            .build();
    client.registerJobTemplate(template);
    raises(JobTemplateAlreadyExistsException.class, () -> client.registerJobTemplate(template));
    same(template, client.getJobTemplate("say"));
    same(1, client.listJobTemplates().size());
    same(JobHandle.Status.SUCCEEDED, ended(client, client.runJob("say", Map.of("word", "hello"))));
    same(JobHandle.Status.FAILED, ended(client, client.runJob("say", Map.of("word", "bye"))));
    same(2, client.listJobs("say").size());
    raises(NoSuchJobTemplateException.class, () -> client.runJob("none", NONE));
    raises(NoSuchJobException.class, () -> client.getJob("job-0"));
    JobTemplateChange.ShellTemplateUpdate update =
        JobTemplateChange.ShellTemplateUpdate.builder()
            .withNewExecutable("/bin/sleep")
            .withNewArguments(List.of("60"))
            .build();
    same("/bin/sleep", client.alterJobTemplate("say", JobTemplateChange.updateTemplate(update)).executable());
    JobHandle napping = client.runJob("say", NONE);
    raises(InUseException.class, () -> client.deleteJobTemplate("say"));
    client.cancelJob(napping.jobId());
    same(JobHandle.Status.CANCELLED, ended(client, napping));
    check(client.deleteJobTemplate("say") && !client.deleteJobTemplate("say"), "a template is deleted once");
  }

  static JobHandle.Status ended(GravitinoClient client, JobHandle job) throws Exception {
    Set<JobHandle.Status> last = Set.of(JobHandle.Status.SUCCEEDED, JobHandle.Status.FAILED, JobHandle.Status.CANCELLED);
    while (!last.contains(client.getJob(job.jobId()).jobStatus())) {
      Thread.sleep(50);
    }
    return client.getJob(job.jobId()).jobStatus();
  }

  static void dropped(GravitinoAdminClient admin, GravitinoClient client) {
    Catalog catalog = client.loadCatalog("sales");
    raises(NonEmptySchemaException.class, () -> catalog.asSchemas().dropSchema("eu", false));
    client.disableCatalog("models");
    raises(NonEmptyCatalogException.class, () -> client.dropCatalog("models"));
    check(client.dropCatalog("models", true), "a catalog is dropped with what is in it");
    admin.disableMetalake("java");
    raises(NonEmptyMetalakeException.class, () -> admin.dropMetalake("java"));
    raises(MetalakeNotInUseException.class, () -> client.createTag("late", "", NONE));
    admin.enableMetalake("java");
  }
}
